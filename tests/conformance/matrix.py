# SPDX-License-Identifier: Apache-2.0
"""Debian's programs: which are run, with which options, and what their output must contain.

A run succeeds if server and client exit with status 0 in time and each `expect` matches. run_programs.py runs the whole list;
the interoperability test runs some of it against the kernel.
"""

import dataclasses
import ipaddress
import re
from typing import Callable, Optional

import harness

MEBIBYTE = 1048576


@dataclasses.dataclass(frozen=True)
class Case:
    program: str
    options: tuple = ()
    gid: Optional[str] = None        # "-g"/"-x" with the index of this address family's GID: "ipv4", "ipv6"
    mtu: int = 1500                  # MTU of the cable
    seconds: int = 60
    figure: Optional[Callable] = None  # parses the speed from the client's output
    unit: str = ""
    expect: str = ""                 # a pattern that the client's output must match
    topology: Optional[str] = None   # the only topology to run it on: "one_host", "two_hosts"
    netdev: str = "lo"               # network device when both ends are on one host
    raw: str = ""                    # raw Ethernet, as root, over the cable: "pair", or "alone" without a peer
    clients: int = 1                 # number of clients, which "-c" tells the server
    shared: bool = False             # perftest's buffers are in files of /dev/shm, one per end

    @property
    def name(self):
        words = [*self.options] + ([self.gid] if self.gid else []) + ([f"mtu{self.mtu}"] if self.mtu != 1500 else [])
        words += [f"{self.clients} clients"] if self.clients > 1 else []
        words += ["in shared memory"] if self.shared else []
        return " ".join([self.program, *words])

    def shortened(self, iterations):
        """Returns a copy with this many messages per run (unless the options give a number), and at most this many of each
        size."""
        options = list(self.options)
        if "-a" in options:
            count = options.index("-n") + 1
            options[count] = str(min(iterations, int(options[count])))
        elif "-n" not in options and not self.raw:
            options += ["-n", str(iterations)]
        return dataclasses.replace(self, options=tuple(options))

    def command(self):
        return [self.program, *self.options]

    def complaint(self, result):
        """A complaint about a finished run, or None."""
        if not result.good:
            return f"server {result.server_status}, client {result.client_status}"
        if self.expect and not re.search(self.expect, result.client.output):
            return f"the client's output has no '{self.expect}'"
        if self.figure and self.figure(result.client.output) is None:
            return "the client's output has no figure"
        return None


def pingpong(program, *options, gid="ipv4", **more):
    return Case(program, options, gid, figure=harness.round_trip, unit="us/iter", expect=r"\d+ iters in", **more)


def rate(program, *options, **more):
    return Case(program, ("-F", *options), figure=harness.bandwidth, unit="MB/s", **more)


def delay(program, *options, **more):
    return Case(program, ("-F", *options), figure=harness.latency, unit="us", **more)


def group(address):
    """A multicast group in perftest's notation: sixteen numbers."""
    return ":".join(str(byte) for byte in ipaddress.IPv6Address(address).packed)


# Every size from 2 bytes to 8 MiB. The number of iterations keeps a run near one second.
ALL_SIZES = ("-a", "-n", "60")


def pingpongs():
    rc, ud = "ibv_rc_pingpong", "ibv_ud_pingpong"
    return [
        pingpong(rc, "-c"),
        pingpong(rc, "-c", gid="ipv6"),
        pingpong(rc, "-c", "-e"),
        # Not with -e: the program treats an event whose completion it has already polled as an error.
        pingpong(rc, "-c", "--ts"),
        pingpong(rc, "-c", "-s", str(MEBIBYTE), "-n", "200"),
        pingpong(rc, "-c", "-m", "256"),
        pingpong(rc, "-c", "-m", "256", "-s", str(MEBIBYTE), "-n", "50"),
        pingpong(rc, "-c", "-m", "4096", "-s", "65536", mtu=9000),
        pingpong(rc, "-c", "-r", "1"),
        pingpong(ud, "-c", "-s", "1024"),
        pingpong(ud, "-c", "-s", "1024", gid="ipv6"),
        pingpong(ud, "-c", "-s", "1024", "-e"),
        pingpong(ud, "-c", "-s", "4096", mtu=9000),
    ]


def service_pingpongs():
    """UC, and shared receive queues. A lost UC message would stop the ping-pong forever."""
    uc, srq, xsrq = "ibv_uc_pingpong", "ibv_srq_pingpong", "ibv_xsrq_pingpong"
    return [
        pingpong(uc, "-c"),
        pingpong(uc, "-c", gid="ipv6"),
        pingpong(uc, "-c", "-e"),
        pingpong(uc, "-c", "-s", "65536", "-n", "300"),
        pingpong(uc, "-c", "-m", "256", "-s", "16384", "-n", "300"),
        pingpong(uc, "-c", "-m", "4096", "-s", "65536", "-n", "300", mtu=9000),
        pingpong(uc, "-c", "-r", "1"),
        pingpong(srq, "-c", "-n", "200"),
        pingpong(srq, "-c", "-n", "200", gid="ipv6"),
        pingpong(srq, "-c", "-n", "200", "-e"),
        pingpong(srq, "-c", "-n", "50", "-s", "65536"),
        pingpong(srq, "-c", "-n", "100", "-m", "256"),
        pingpong(srq, "-c", "-n", "200", "-q", "1"),
        pingpong(srq, "-c", "-n", "20", "-q", "100", "-r", "200"),
        Case(xsrq, ("-m", "1024"), "ipv4"),
        Case(xsrq, ("-m", "1024"), "ipv6"),
        Case(xsrq, ("-m", "1024", "-e", "-n", "100"), "ipv4"),
        Case(xsrq, ("-m", "256", "-s", "65536", "-n", "20"), "ipv4"),
        Case(xsrq, ("-m", "4096", "-s", "65536"), "ipv4", 9000),
        # With several clients, the server answers each through the target QPs of the others.
        Case(xsrq, ("-m", "1024"), "ipv4", clients=2),
        Case(xsrq, ("-m", "1024", "-n", "100"), "ipv4", clients=3),
        Case(xsrq, ("-m", "1024", "-n", "50"), "ipv6", clients=4),
        Case(xsrq, ("-m", "1024", "-e", "-n", "100"), "ipv4", clients=2),
        Case(xsrq, ("-m", "1024", "-e", "-n", "50"), "ipv6", clients=4),
        Case(xsrq, ("-m", "1024", "-o", "-n", "50"), "ipv4", clients=2),
        Case(xsrq, ("-m", "256", "-s", "65536", "-n", "20"), "ipv4", clients=3),
        Case(xsrq, ("-m", "4096", "-s", "65536", "-n", "20"), "ipv4", 9000, clients=3),
    ]


def services():
    """perftest over UC and XRC, and with shared receive queues.

    A UC message that finds no receive posted is lost, and a server that waits for all messages then never ends. So no more
    messages are sent than the receives posted in advance (512).
    """
    cases = []
    for program in ("ib_send", "ib_write"):
        cases += [
            rate(f"{program}_bw", "-c", "UC", "-n", "500"),
            rate(f"{program}_bw", "-c", "UC", "-n", "500", "-s", "1024", gid="ipv6"),
            rate(f"{program}_bw", "-c", "UC", "-n", "500", "-s", "64"),
            delay(f"{program}_lat", "-c", "UC"),
            delay(f"{program}_lat", "-c", "UC", *ALL_SIZES[1:], "-s", "65536"),
        ]
    for operation in ("send", "write", "read", "atomic"):
        cases += [
            rate(f"ib_{operation}_bw", "-c", "XRC"),
            rate(f"ib_{operation}_bw", "-c", "XRC", gid="ipv6"),
            rate(f"ib_{operation}_bw", "-c", "XRC", "-q", "4", "-n", "500"),
            delay(f"ib_{operation}_lat", "-c", "XRC"),
        ]
    cases += [
        rate("ib_send_bw", "-c", "XRC", "-b"),
        rate("ib_send_bw", "--use-srq"),
        rate("ib_send_bw", "--use-srq", "-q", "8", "-n", "500"),
        rate("ib_send_bw", "--use-srq", "-b"),
        rate("ib_send_bw", "--use-srq", "-e"),
        rate("ib_send_bw", "--use-srq", "-c", "UD", "-s", "1024"),
        delay("ib_send_lat", "--use-srq"),
        delay("ib_send_lat", "--use-srq", "-e"),
    ]
    return cases


def multicasts(measure, program):
    """Multicast: to perftest's default group, which Linux keeps on the host, and to groups that reach other hosts.

    Linux has no route for IPv6 groups over the loopback device.
    """
    to_group = ("-c", "UD", "-g", "-s", "1024")
    cases = [measure(program, *to_group, gid="ipv6", topology="one_host", netdev="eth0")]
    if program == "ib_send_bw":  # a latency test needs a group per end, which -M cannot express
        cases += [measure(program, *to_group, "-M", group("::ffff:239.47.91.1"), gid="ipv4"),
                  measure(program, *to_group, "-M", group("ff05::4791"), gid="ipv6", topology="two_hosts")]
    return cases


def bandwidths():
    cases = []
    for program in ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw"):
        sized = program != "ib_atomic_bw"
        cases.append(rate(program))
        if sized:
            cases += [
                rate(program, *ALL_SIZES, seconds=120),
                rate(program, *ALL_SIZES, "-b", seconds=180),
                rate(program, "-s", "65536", mtu=9000),
                rate(program, "-s", "2", "-l", "16", "-t", "256", "-n", "1600"),
                rate(program, "-m", "256", "-n", "500"),
            ]
        else:
            cases += [rate(program, "-A", "CMP_AND_SWAP"), rate(program, "-l", "16", "-t", "256", "-n", "1600")]
        cases += [
            rate(program, gid="ipv6"),
            rate(program, "-b"),
            rate(program, "-q", "16", "-n", "500", seconds=120),
            rate(program, "-q", "16", "-b", "-n", "200", seconds=120),
            rate(program, "-t", "1"),
            rate(program, "-t", "512", "-Q", "1"),
            rate(program, "--use_old_post_send"),  # ibv_post_send() in place of ibv_wr_*()
            rate(program, "--use_old_post_send", "-s", "2", "-l", "16", "-t", "256", "-n", "1600") if sized else
            rate(program, "--use_old_post_send", "-A", "CMP_AND_SWAP"),
        ]
        if program != "ib_write_bw":  # the target of a WRITE gets no event, so perftest has no event mode for it
            cases.append(rate(program, "-e", "-n", "500"))
    cases += [
        rate("ib_send_bw", "-c", "UD", "-s", "1024"),
        rate("ib_send_bw", "-c", "UD", "-s", "1024", gid="ipv6"),
        rate("ib_send_bw", "-c", "UD", "-s", "1024", "--use_old_post_send"),
        rate("ib_write_bw", "-s", "64", "-I", "64"),
        rate("ib_send_bw", "--report-counters=counters/port_xmit_data,hw_counters/out_of_seq_request", "-n", "60000",
             expect=r"counters/port_xmit_data=[1-9]\d*\s+hw_counters/out_of_seq_request=\d"),
        *multicasts(rate, "ib_send_bw"),
        rate("ib_write_bw", "-s", "64", "-I", "64", "--use_old_post_send"),
    ]
    return cases


def latencies():
    cases = []
    for program in ("ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_lat"):
        cases += [delay(program), delay(program, gid="ipv6"), delay(program, "--use_old_post_send")]
        if program != "ib_atomic_lat":
            cases += [delay(program, *ALL_SIZES, seconds=120), delay(program, "-s", "65536", mtu=9000)]
        else:
            cases.append(delay(program, "-A", "CMP_AND_SWAP"))
        if program != "ib_write_lat":
            cases.append(delay(program, "-e"))
    cases += [
        delay("ib_send_lat", "-c", "UD", "-s", "1024"),
        delay("ib_send_lat", "-I", "0"),
        *multicasts(delay, "ib_send_lat"),
        delay("ib_write_lat", "-I", "220"),
    ]
    return cases


def shared_memory():
    """One-sided operations on memory that is already shared, and which the peer process therefore maps if it can."""
    cases = []
    for operation in ("write", "read", "atomic"):
        cases += [
            delay(f"ib_{operation}_lat", shared=True),
            rate(f"ib_{operation}_bw", shared=True),
            rate(f"ib_{operation}_bw", "-b", shared=True),
            rate(f"ib_{operation}_bw", "-q", "4", "-n", "500", shared=True),
        ]
        if operation != "atomic":
            cases += [
                delay(f"ib_{operation}_lat", *ALL_SIZES, shared=True, seconds=120),
                rate(f"ib_{operation}_bw", *ALL_SIZES, shared=True, seconds=120),
                rate(f"ib_{operation}_bw", "-s", "8", "-l", "16", "-t", "256", "-n", "1600", shared=True),
            ]
    return [*cases, delay("ib_send_lat", shared=True), rate("ib_send_bw", "-b", shared=True)]


def raw_packets():
    """perftest's programs for raw Ethernet. They have no flow control: frames sent faster than they are received are lost, and
    a receiver that waits for all of them never ends. So few frames are in flight, or the receiver has a timeout."""
    def lat(*options, **more):
        return Case("raw_ethernet_lat", options, figure=harness.latency, unit="us", raw="pair", **more)

    def bandwidth(*options, **more):
        return Case("raw_ethernet_bw", options, figure=harness.bandwidth, unit="MB/s", raw="pair", **more)

    ports = ("-J", "10.9.0.1", "-j", "10.9.0.2", "-K", "4000", "-k", "4001")
    return [
        lat(), lat("-s", "1500"), lat("-s", "9000", mtu=9000), lat(*ports), lat("--promiscuous"),
        bandwidth("-n", "500", "-r", "1024"), bandwidth("-s", "64", "-n", "500", "-r", "1024"), bandwidth(*ports, "-n", "500", "-r", "1024"),
        bandwidth("-b", "-n", "200", "-r", "512"),
        # The program waits for a completion of every send, but requests one for each only with -Q 1.
        Case("raw_ethernet_burst_lat", ("-n", "500", "--rate_limit_type=PP", "--rate_limit=100", "--rate_units=M",
                                        "--burst_size=16", "-Q", "1"), raw="pair", expect=r"\n \d+ +500 "),
        Case("raw_ethernet_fs_rate", ("-n", "1000"), raw="alone", expect=r"\n ?1000 +[0-9.]+\s+[0-9.]+"),
    ]


def all_cases():
    return pingpongs() + service_pingpongs() + bandwidths() + latencies() + services() + shared_memory() + raw_packets()


def programs():
    return list(dict.fromkeys(case.program for case in all_cases()))
