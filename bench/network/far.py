#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the throughput of an unmodified RDMA program over bad links, and of TCP (cubic, bbr) over the same links for comparison.

    far.py --build build/release                          every link, as a table
    far.py --build build/release --links rtt-10ms loss-1 --seconds 8 --rounds 3
    far.py --list                                         the links
    far.py --build build/release --self-check             the emulator's own throughput, which must exceed that of the links

The link_emulator of tests/network joins two network namespaces. Over each link, ib_write_bw (64 KiB, one queue pair; --program
chooses another) and iperf3 run in turn. MB are 10^6 bytes of payload. The ratio compares Verbena with the better TCP.

From 10 Gb/s on, the processors are the limit, and the kernel emulates the link (kernel_link.py). The processors of a virtual machine
may be near each other or far apart, and this changes within seconds. Over such links, a measurement that was disturbed by a change
is repeated for up to --patience seconds (bench/verbs/other_guests.py). --patience 0 accepts the first result.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "conformance"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "verbs"))
import harness  # noqa: E402
from kernel_link import KernelLink  # noqa: E402
from links import LINKS, MESSAGE_BYTES  # noqa: E402
from other_guests import OtherGuests  # noqa: E402

MEBI = 1.048576  # perftest counts MiB
# Minimum, default and maximum of TCP's buffers. The maximum is over twice the bandwidth-delay product of 10 Gb/s and 20 ms.
TCP_MEMORY = "4096 1000000 67108864"
READING = "ib_read_bw"
PROGRAMS = ("ib_write_bw", READING, "ib_send_bw")
FIRST = ("chrt", "-r", "1")  # command prefix: real-time priority
STARTING = 60  # seconds that a program gets in addition to its measuring time


def tune_tcp(host):
    for name in ("tcp_rmem", "tcp_wmem"):
        harness.set_in_kernel(host.namespace, f"ipv4/{name}", TCP_MEMORY)


def tcp_algorithms():
    available = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text(encoding="ascii").split()
    return [name for name in ("cubic", "bbr") if name in available]


class Pair:
    """Two hosts joined by a link, and the measurements between them. Figures are in MB/s; None: the program failed."""

    def __init__(self, server, client, seconds, options, link=None):
        self.server, self.client = server, client
        self.seconds = seconds
        self._name = options.program
        self._program = link.program.split() if link else []  # further options of the program
        self._bytes = link.read_bytes if link and self._name == READING else MESSAGE_BYTES
        self._verbose = options.verbose
        for host in (server, client):
            tune_tcp(host)

    def complain(self, what):
        if self._verbose:
            print(what, file=sys.stderr, flush=True)

    def start_iperf(self, algorithm, seconds, omit=0):
        port = self.server.hosts.port()
        # As root: other users may choose only algorithms listed in net.ipv4.tcp_allowed_congestion_control.
        server = self.server.start(["iperf3", "-s", "-1", "-p", port], user=[])
        harness.poll_until(lambda: server.listens(port) or not server.running(), 20)
        direction = ["-R"] if self._name == READING else []  # -R: the server sends, as with READ
        client = self.client.start(["iperf3", "-c", self.server.ipv4, "-p", port, "-C", algorithm, "-t", seconds,
                                    "-O", omit, "-J", *direction], user=[])
        return server, client

    def iperf_result(self, server, client, seconds):
        """The client's JSON report, which covers both ends; None if iperf3 failed."""
        status = client.wait(seconds + STARTING)
        server.kill()
        client.kill()
        try:
            said = json.loads(client.output)
        except ValueError:
            said = {"error": client.output or "nothing said"}
        if status != 0 or "error" in said:
            self.complain(f"iperf3: {status} {said.get('error')}")
            return None
        return said

    def tcp(self, algorithm):
        omit = max(1, self.seconds // 4)
        said = self.iperf_result(*self.start_iperf(algorithm, self.seconds, omit), self.seconds + omit)
        return said["end"]["sum_received"]["bits_per_second"] / 8e6 if said else None

    def command(self):
        index = self.client.gid_index(self.client.ipv4, "rxe_eth0")
        return [self._name, "-d", "rxe_eth0", "-x", index, "-F", "-s", self._bytes, "-D", self.seconds,
                *self._program]

    def figure(self, result):
        figure = harness.bandwidth(result.client.output) if result.good else None
        if figure is None:
            self.complain(result.report())
            return None
        return figure * MEBI

    def write(self):
        return self.figure(harness.pair(self.server, self.client, self.command(), seconds=self.seconds + STARTING))

    def four_writes(self):
        """The figures of four programs at once, each with a server of its own."""
        command, ports = self.command(), [self.server.hosts.port() for _ in range(4)]
        servers = [self.server.verbena("run", *command, "-p", port) for port in ports]
        for server, port in zip(servers, ports):
            harness.poll_until(lambda s=server, p=port: s.listens(p) or not s.running(), 20)
        clients = [self.client.verbena("run", *command, "-p", port, self.server.ipv4) for port in ports]
        deadline = time.monotonic() + self.seconds + STARTING
        statuses = [process.wait(max(0.0, deadline - time.monotonic())) for process in (*clients, *servers)]
        for process in (*clients, *servers):
            process.kill()
        return [self.figure(harness.Result(server, client, status, status))
                for server, client, status in zip(servers, clients, statuses)]

    def beside_tcp(self, algorithm):
        """Runs the program beside a TCP flow: (its rate, the rate of the flow in that time)."""
        command = self.command()
        around = 3  # seconds for which TCP runs before and after the program
        began = time.monotonic()
        flow = self.start_iperf(algorithm, self.seconds + 2 * around + 2)
        time.sleep(around)  # the flow reaches its full rate first
        result = harness.pair(self.server, self.client, command, seconds=self.seconds + STARTING)
        from_, to = result.client.began - began + 0.5, result.client.began - began + self.seconds
        said = self.iperf_result(*flow, self.seconds + 2 * around)
        if not said:
            return self.figure(result), None
        rates = [interval["sum"]["bits_per_second"] / 8e6 for interval in said["intervals"]
                 if interval["sum"]["start"] >= from_ and interval["sum"]["end"] <= to]
        return self.figure(result), statistics.mean(rates) if rates else None


def jain(figures):
    """Jain's fairness index: 1 if all figures are equal, 1/n if one of n flows gets everything."""
    return sum(figures) ** 2 / (len(figures) * sum(figure ** 2 for figure in figures)) if any(figures) else 0.0


def median(figures):
    good = [figure for figure in figures if figure is not None]
    return statistics.median(good) if good else None


def join(hosts, link, seed, program):
    """Returns (server, client) and the link that joins them."""
    if not link.is_by_kernel:
        return hosts.two_far([*link.options.split(), "--seed", seed], link.mtu, prefix=FIRST if link.goes_first else ())
    server, client = hosts.two(link.mtu)
    to, from_ = (client, server) if program == READING else (server, client)
    round_trip = 2 * float(link.option("--delay"))
    return (server, client), KernelLink(hosts, to, from_, link.option("--rate"), link.option("--queue"), round_trip)


def measure(build, link, options):
    """A row of the table: medians over the rounds. Each round runs Verbena and TCP in turn."""
    runs = []
    undisturbed = options.guests.without if link.is_fast else lambda measure_it: measure_it()
    for number in range(options.rounds):
        with harness.Hosts(build) as hosts:
            (server, client), made = join(hosts, link, options.seed + number, options.program)
            pair = Pair(server, client, max(options.seconds, link.seconds), options, link)
            run = {}
            if link.measure == "beside":
                run["verbena"], run["tcp"] = pair.beside_tcp("bbr" if "bbr" in options.algorithms else "cubic")
            else:
                if link.measure == "four":
                    run["each"] = pair.four_writes()
                    run["verbena"] = sum(figure or 0 for figure in run["each"])
                else:
                    run["verbena"] = undisturbed(pair.write)
                run |= {algorithm: undisturbed(lambda: pair.tcp(algorithm)) for algorithm in options.algorithms}
            run["link"] = made.end()
            runs.append(run)
    row = {"name": link.name, "what": link.what, "measure": link.measure, "options": link.options, "mtu": link.mtu, "runs": runs}
    for column in ("verbena", "cubic", "bbr", "tcp"):
        if column in runs[0]:
            row[column] = median([run[column] for run in runs])
    if link.measure == "four":
        row["jain"] = median([jain([figure or 0 for figure in run["each"]]) for run in runs])
    best = max((row.get(algorithm) or 0 for algorithm in options.algorithms), default=0)
    if best:
        row["ratio"] = (row["verbena"] or 0) / best
    if link.measure == "beside":
        for column in ("verbena", "tcp"):
            row[f"{column}_share"] = (row[column] or 0) / link.rate
    return row


def shown(figure):
    return f"{figure:8.1f}" if figure is not None else "  failed"


HEADER = f"{'link':<17}{'':<62}{'Verbena':>8}{'cubic':>9}{'bbr':>9}{'ratio':>8}   MB/s"


def show(row):
    line = f"{row['name']:<17}{row['what']:<62}{shown(row['verbena'])}"
    if row["measure"] == "beside":
        line += (f"  TCP {shown(row['tcp']).strip()}; shares of the link: Verbena {row['verbena_share']:.2f}, "
                 f"TCP {row['tcp_share']:.2f}")
    else:
        line += "".join(f" {shown(row[algorithm])}" if algorithm in row else f"{'':>9}" for algorithm in ("cubic", "bbr"))
        line += f"{row['ratio']:>8.2f}" if "ratio" in row else ""
    if row["measure"] == "four":
        line += f"   Jain {row['jain']:.3f}: " + ", ".join(shown(figure).strip() for figure in row["runs"][0]["each"])
    print(line, flush=True)


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def self_check(build, options):
    """Measures TCP over a cable and over emulated links without loss or delay: shows how much the emulator itself can carry."""
    print(f"{'':<28}" + "".join(f"{algorithm:>8}" for algorithm in options.algorithms) + "   Gb/s; processors used by the emulator")
    for name, words in (("cable (veth)", None), ("emulator, no limits", ""), ("emulator, 10 Gb/s", "--rate 10000 --queue 2000000"),
                        ("emulator, 1 Gb/s", "--rate 1000 --queue 250000")):
        with harness.Hosts(build) as hosts:
            ends, emulator = (hosts.two(), None) if words is None else hosts.two_far(words.split())
            pair = Pair(*ends, options.seconds, options)
            began = time.monotonic()
            figures = [pair.tcp(algorithm) for algorithm in options.algorithms]
            line = f"{name:<28}" + "".join(f"{figure / 125:8.2f}" if figure else "  failed" for figure in figures)
            if emulator:
                line += f"   {processor_seconds(emulator) / (time.monotonic() - began):.2f}"
            print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", help="the build folder, such as build/release")
    parser.add_argument("--links", nargs="+", choices=[link.name for link in LINKS], metavar="NAME", help="measure these links only")
    parser.add_argument("--seconds", type=int, default=4, help="length of each measurement; longer over some links")
    parser.add_argument("--program", choices=PROGRAMS, default=PROGRAMS[0], help="the program of Debian's perftest to run")
    parser.add_argument("--rounds", type=int, default=1, help="number of rounds; the table shows medians")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first round's link; each round uses the next number")
    parser.add_argument("--list", action="store_true", help="list the links with their options")
    parser.add_argument("--patience", type=float, default=60,
                        help="maximum seconds for repeating a disturbed measurement of a fast link; 0: never repeat")
    parser.add_argument("--json", metavar="FILE", help="write all figures and the links' counters to FILE")
    parser.add_argument("--self-check", action="store_true", help="measure the emulator itself")
    parser.add_argument("--verbose", action="store_true", help="say why a program failed")
    options = parser.parse_args()
    if options.list:
        for link in LINKS:
            print(f"{link.name:<17}{link.what:<62}{link.options}{f'  (devices: MTU {link.mtu})' if link.mtu != 1500 else ''}")
        return
    if not options.build:
        parser.error("--build is needed")
    harness.require_root()
    harness.require_tap()
    harness.require_programs("ip", "tc", "iperf3", options.program, "setpriv", "chrt")
    options.algorithms = tcp_algorithms()
    if options.self_check:
        self_check(options.build, options)
        return
    links = [link for link in LINKS if not options.links or link.name in options.links]
    patience = options.patience if any(link.is_fast for link in links) else 0
    options.guests = OtherGuests(pathlib.Path(options.build) / "bin" / "one_host_limits", patience)
    print(HEADER, flush=True)
    rows = []
    for link in links:
        rows.append(measure(options.build, link, options))
        show(rows[-1])
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if patience:
        print(options.guests.report())


if __name__ == "__main__":
    main()
