# SPDX-License-Identifier: Apache-2.0
"""The links of far.py: options of tests/network's link_emulator, and which programs run over them."""

import dataclasses

MESSAGE_BYTES = 65536  # message size of the programs


@dataclasses.dataclass(frozen=True)
class Link:
    name: str
    what: str
    options: str  # options of link_emulator
    mtu: int = 1500  # MTU of the hosts' devices
    measure: str = "alone"  # or "four": four programs with a queue pair each; or "beside": beside a TCP flow
    seconds: int = 0  # minimum length of a measurement: some links show their effect slowly
    # Options of ib_write_bw: -u, the local ACK timeout (default 67 ms, 7 retries), must exceed the round trip. -t, the requests in
    # flight, must exceed the bandwidth-delay product, by three times where packets are lost. -f leaves out the start, as iperf3 does.
    program: str = ""
    read_bytes: int = MESSAGE_BYTES  # size of a READ; a queue pair has at most 128 READs in flight

    @property
    def rate(self):
        """The link's rate in MB/s; None if it has no limit or a changing one."""
        rate = float(self.option("--rate"))
        return rate / 8 if rate and self.option("--rate-turn") == "0" else None

    def option(self, name):
        """The value of an option that takes one word; "0" if the option is missing."""
        words = self.options.split()
        return words[words.index(name) + 1] if name in words else "0"

    @property
    def is_by_kernel(self):
        """Whether kernel_link.py emulates the link, with rate, queue and delay only. At this rate the emulator would take
        processor time from the programs under test."""
        return (self.rate or 0) >= 1250

    @property
    def is_fast(self):
        """Whether the processors limit the throughput, not the link."""
        return self.option("--rate") == "0" or self.is_by_kernel

    @property
    def goes_first(self):
        """Whether the emulator runs with real-time priority. Otherwise more polling programs than processors would delay it, and
        evenly paced packets would reach its queue in bursts."""
        return self.measure == "four"


# The queue of most links: 8 ms at 1 Gb/s, like switches and home routers of that speed.
DEEP = "--queue 1000000"

LINKS = [
    # The links that were measured first.
    Link("queue-250k", "1 Gb/s, queue 250 kB", "--rate 1000 --queue 250000"),
    Link("queue-60k", "1 Gb/s, queue 60 kB", "--rate 1000 --queue 60000"),
    Link("rtt-2ms", "1 Gb/s, 2 ms round trip", "--rate 1000 --queue 250000 --delay 1"),
    Link("rtt-10ms", "1 Gb/s, 10 ms", "--rate 1000 --queue 1000000 --delay 5"),
    Link("rtt-50ms", "1 Gb/s, 50 ms", "--rate 1000 --queue 3000000 --delay 25"),
    Link("loss-0.1", "1 Gb/s, 0.1 % lost", f"--rate 1000 {DEEP} --loss 0.001"),
    Link("loss-1", "1 Gb/s, 1 % lost", f"--rate 1000 {DEEP} --loss 0.01"),
    Link("loss-5", "1 Gb/s, 5 % lost", f"--rate 1000 {DEEP} --loss 0.05"),
    Link("rtt-2ms-loss-0.1", "1 Gb/s, 2 ms, 0.1 % lost", f"--rate 1000 {DEEP} --delay 1 --loss 0.001"),
    Link("rtt-10ms-loss-1", "1 Gb/s, 10 ms, 1 % lost", "--rate 1000 --queue 1000000 --delay 5 --loss 0.01"),
    Link("early-10", "1 Gb/s, 2 ms, one packet in ten early", f"--rate 1000 {DEEP} --delay 1 --early 0.1"),
    Link("doubled-5", "1 Gb/s, 5 % doubled", f"--rate 1000 {DEEP} --duplicate 0.05"),
    Link("flipped-1", "1 Gb/s, 1 % with a bit flipped", f"--rate 1000 {DEEP} --corrupt 0.01"),
    Link("100m", "100 Mb/s, queue 60 kB", "--rate 100 --queue 60000"),
    Link("four", "1 Gb/s, queue 250 kB, four QPs of four programs", "--rate 1000 --queue 250000", measure="four"),
    Link("beside-tcp", "1 Gb/s, queue 250 kB, beside one TCP flow (bbr)", "--rate 1000 --queue 250000", measure="beside"),

    # Further links, like paths outside a data centre.
    Link("10g-20ms", "10 Gb/s, 20 ms", "--rate 10000 --queue 12500000 --delay 10", program="-t 1024", read_bytes=1 << 20),
    Link("wifi", "300 Mb/s, 4 ms, stalls of up to 12 ms, 0.1 % lost",
         "--rate 300 --queue 750000 --delay 2 --jitter 12 --jitter-every 7 --loss 0.001"),
    Link("bursts", "1 Gb/s, 2 ms, 30 % lost for 200 ms of each second",
         f"--rate 1000 {DEEP} --delay 1 --burst-every 1000 --burst-length 200 --burst-loss 0.3"),
    Link("small-mtu", "1 Gb/s, 2 ms, MTU 1500 between hosts with 9000", f"--rate 1000 {DEEP} --delay 1 --mtu 1500", mtu=9000),
    Link("changing", "1 Gb/s and 200 Mb/s, second by second, 2 ms",
         f"--rate 1000 --other-rate 200 --rate-turn 1000 {DEEP} --delay 1", seconds=8),
    Link("gaps", "1 Gb/s, 2 ms, nothing at all for 100 ms of each second",
         f"--rate 1000 {DEEP} --delay 1 --burst-every 1000 --burst-length 100 --burst-loss 1"),
    Link("runs", "1 Gb/s, 2 ms, losses in runs of some packets, 0.3 % in all",
         f"--rate 1000 {DEEP} --delay 1 --bad-begins 0.0007 --bad-ends 0.15 --bad-loss 0.7"),
    Link("late-1", "1 Gb/s, 2 ms, one packet in a hundred up to 2 ms late", f"--rate 1000 {DEEP} --delay 1 --late 0.01 --detour 2"),
    Link("mobile", "50 Mb/s, 40 ms, stalls of up to 30 ms, queue of 300 ms",
         "--rate 50 --queue 1900000 --delay 20 --jitter 30 --jitter-every 20", seconds=8, program="-u 18"),
    Link("satellite", "50 Mb/s, 600 ms, 0.1 % lost", "--rate 50 --queue 3000000 --delay 300 --loss 0.001", seconds=30,
         program="-u 20 -t 512 -f 7", read_bytes=1 << 18),
    Link("marks", "1 Gb/s, 2 ms, marks (ECN) above 60 kB of queue", f"--rate 1000 {DEEP} --delay 1 --mark-above 60000"),
    Link("10g", "10 Gb/s, queue 1 MB", f"--rate 10000 {DEEP}"),
    Link("free", "no limits", ""),
]
