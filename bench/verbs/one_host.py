#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Debian's unmodified programs with both ends on one host, and compares them with the limits of this machine.

    one_host.py --build build/release                          everything
    one_host.py --build build/release --only ib_send_lat       rows whose name contains this word; may be repeated
    one_host.py --build build/release --route wire             the same over UDP (VERBENA_LOCAL=off), for comparison

Both ends run in one network namespace, as an ordinary user, with default settings. Rows are compared with limits of the machine
(bin/one_host_limits) and with other libraries (UCX's and libfabric's shared memory). Each round of a row measures these again,
because load on a shared machine disturbs both. Figures are medians over the rounds. A measurement that other guests of the host
disturbed is repeated for up to --patience seconds (other_guests.py); --patience 0 accepts the first result.

The flag is the half round trip of one cache line between two pinned processors. It depends on whether the processors of a virtual
machine are near each other or far apart, so runs are comparable only if their flags are similar. Rows whose programs are not
installed are left out, and the output says so.
"""

import argparse
import dataclasses
import pathlib
import re
import shutil
import statistics
import sys
import tempfile
from typing import Callable, Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "conformance"))
import harness  # noqa: E402
from other_guests import OtherGuests  # noqa: E402

NUMBER = r"(\d+(?:\.\d+)?)"
SECONDS = 120
MEBIBYTE = 1048576
NEAR_NS = 120  # a flag takes 30 to 60 ns between processors that share a cache, and 200 to 300 between others
BUSY_NS = 450


class Missing(Exception):
    """A program that a measurement needs is not installed."""


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Missing(program)


class Bench:
    """Runs the programs on the host, and returns their figures."""

    def __init__(self, hosts, options, folder):
        self.hosts = hosts
        self.host = hosts.one() if options.netdev == "lo" else hosts.two()[0]
        self.device = f"rxe_{self.host.netdev}"
        self.gid = self.host.gid_index(self.host.ipv4, self.device)
        self.folder = pathlib.Path(folder)
        self.limits_program = pathlib.Path(options.build) / "bin" / "one_host_limits"
        self._mpi_messages = None

    def limit(self, name):
        if not self.limits_program.exists():
            raise Missing("one_host_limits (of this build)")
        found = re.search(rf"^{name} {NUMBER} (\S+)", harness.sh(self.limits_program, "--rounds", 3, "--only", name))
        return float(found.group(1)) * (1e-3 if found.group(2) == "ns" else 1)

    def perftest(self, *command, server=(), client=(), shared_memory=False):
        """Runs a program of perftest as server and client; returns the client's output."""
        need(command[0])
        options = ["--shared-memory"] if shared_memory else []
        result = harness.pair(self.host, self.host, [*command, "-F", "-d", self.device, "-x", self.gid], seconds=SECONDS,
                              server_options=server, client_options=client,
                              wrap=lambda host, *program: host.verbena("run", *options, *program))
        if not result.good:
            raise RuntimeError(result.report())
        return result.client.output

    def ucx(self, transports, test, size, count):
        """Runs ucx_perftest without Verbena; returns the figures of its last line."""
        need("ucx_perftest")
        result = harness.pair(self.host, self.host, ["ucx_perftest"], seconds=SECONDS,
                              client_options=["-t", test, "-s", size, "-n", count, "-w", count // 20],
                              wrap=lambda host, *program: host.start(program, environment={"UCX_TLS": transports}))
        final = re.search(r"^Final:\s+(.*)$", result.client.output, re.MULTILINE)
        if not result.good or not final:
            raise RuntimeError(result.report())
        return [float(word) for word in final.group(1).split()]

    def libfabric(self, size, count):
        """Runs fi_pingpong over libfabric's shared memory, without Verbena; returns MB/s and the half round trip in us."""
        need("fi_pingpong")
        port = self.hosts.port()
        words = ["fi_pingpong", "-p", "shm", "-e", "rdm", "-I", count, "-S", size]
        serving = self.host.start([*words, "-B", port])
        harness.poll_until(lambda: serving.listens(port) or not serving.running(), 20)
        calling = self.host.start([*words, "-P", port, self.host.ipv4])
        status = calling.wait(SECONDS)
        result = harness.Result(serving, calling, serving.wait(10 if status == 0 else 0), status)
        for process in (serving, calling):
            process.kill()
        figures = re.search(rf"^\w+\s+\w+\s+=\w+\s+\S+\s+{NUMBER}s\s+{NUMBER}\s+{NUMBER}", calling.output, re.MULTILINE)
        if not result.good or not figures:
            raise RuntimeError(result.report())
        return float(figures.group(2)), float(figures.group(3))

    def mpi(self, name, *options, start=None):
        """Runs mpi_messages and returns the figure `name`. `options` must make UCX use verbs: by default it uses its own
        shared memory."""
        need("mpirun", "mpic++")
        if not self._mpi_messages:
            program = self.folder / "mpi_messages"
            harness.sh("mpic++", "-std=c++20", "-O2", "-DOMPI_SKIP_MPICXX", pathlib.Path(__file__).with_name("mpi_messages.cc"),
                       "-o", program)
            self._mpi_messages = program
        words = ["mpirun", "-np", 2, "--oversubscribe", *options, self._mpi_messages]
        process = start(words) if start else self.host.verbena("run", *words)
        status, output = self.host.finish(process, SECONDS)
        found = re.search(rf"^{name} {NUMBER}", output, re.MULTILINE)
        if status != 0 or not found:
            raise RuntimeError(f"{' '.join(process.command)}: exit {status}\n{output}")
        return float(found.group(1))


def latency(*command):
    """The median in microseconds over all iterations of the client (-H), since its summary shows two decimals only."""
    def measure(bench, **options):
        output = bench.perftest(*command, "-H", **options)
        return statistics.median(float(word) for word in re.findall(rf"^\d+, {NUMBER}$", output, re.MULTILINE))
    return measure


def latency_in_shared_memory(*command):
    """Like latency(), with the buffers of both ends in shared files of /dev/shm."""
    def measure(bench):
        with harness.shared_files(2) as files:
            server, client = ([f"--mmap={path}"] for path in files)
            return latency(*command)(bench, server=server, client=client)
    return measure


def latency_with_shared_memory(*command):
    """Like latency(), with buffers from malloc() under `verbena run --shared-memory`."""
    return lambda bench: latency(*command)(bench, shared_memory=True)


def rate_line(output):
    rows = re.findall(rf"^\s*\d+\s+\d+\s+{NUMBER}\s+{NUMBER}\s+{NUMBER}\s*$", output, re.MULTILINE)
    return [float(word) for word in rows[-1]]


def bandwidth(*command):
    """Gigabytes per second, converted from perftest's MiB."""
    return lambda bench: rate_line(bench.perftest(*command))[1] * MEBIBYTE / 1e9


def message_rate(*command):
    """Millions of messages per second."""
    return lambda bench: rate_line(bench.perftest(*command))[2]


def limit(name):
    return lambda bench: bench.limit(name)


def ucx_latency(test, size):
    return lambda bench: bench.ucx("posix,self", test, size, 100000)[1]


def ucx_bandwidth(transports):
    return lambda bench: bench.ucx(transports, "tag_bw", MEBIBYTE, 2000)[5] * MEBIBYTE / 1e9


def open_mpi(name):
    options = ("--mca", "pml", "ucx", "-x", "UCX_TLS=rc,self")
    return lambda bench: bench.mpi(name, *options)


def open_mpi_without_verbena(name):
    options = ("--mca", "pml", "ob1", "--mca", "btl", "vader,self")
    return lambda bench: bench.mpi(name, *options, start=lambda words: bench.host.start(words))


# The figures that rows are compared with: name, unit, measurement.
PEERS = {name: (unit, measure) for name, unit, measure in (
    ("flag", "us", limit("flag")),
    ("two-copy ring", "GB/s", limit("two_copy_ring")),
    ("memcpy", "GB/s", limit("memcpy")),
    ("process_vm_readv 8 B", "us", limit("process_vm_readv_8")),
    ("process_vm_writev 8 B", "us", limit("process_vm_writev_8")),
    ("process_vm_readv 1 MiB", "GB/s", limit("process_vm_readv")),
    ("process_vm_writev 1 MiB", "GB/s", limit("process_vm_writev")),
    ("eventfd", "us", limit("eventfd_unpinned")),
    ("eventfd, 1 us of work each", "us", limit("eventfd_working")),
    ("eventfd, pinned apart", "us", limit("eventfd")),
    ("UCX tag_lat 8 B", "us", ucx_latency("tag_lat", 8)),
    ("UCX tag_lat 4 KiB", "us", ucx_latency("tag_lat", 4096)),
    ("UCX put_lat 8 B", "us", ucx_latency("ucp_put_lat", 8)),
    ("UCX tag_bw 1 MiB", "GB/s", ucx_bandwidth("posix,self")),
    ("UCX tag_bw 1 MiB, cma", "GB/s", ucx_bandwidth("posix,cma,self")),
    ("libfabric shm 8 B", "us", lambda bench: bench.libfabric(8, 20000)[1]),
    ("libfabric shm 1 MiB", "GB/s", lambda bench: bench.libfabric(MEBIBYTE, 2000)[0] / 1e3),
    ("Open MPI's own 8 B", "us", open_mpi_without_verbena("half_round_trip_8")),
    ("Open MPI's own 1 MiB", "GB/s", open_mpi_without_verbena("stream_1MiB")),
)}


@dataclasses.dataclass(frozen=True)
class Want:
    """The bound of a figure: a maximum for latencies, a minimum for rates. It is a multiple of the peer's figure, or, without a
    peer, in the row's unit."""
    bound: float
    peer: Optional[str] = None

    def reached(self, ours, peer, smaller_is_better):
        measured = ours / peer if self.peer else ours
        return measured <= self.bound if smaller_is_better else measured >= self.bound


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    unit: str
    measure: Callable
    wants: tuple
    beside: tuple = ()  # further peers to compare with, without a bound

    @property
    def smaller_is_better(self):
        return self.unit == "us"


LARGE = ("-s", str(MEBIBYTE), "-n", "4000")
SMALL = ("-s", "8", "-n", "1600000")
QUICK = ("-n", "20000")
ROWS = (
    Row("ib_send_lat -s 8", "us", latency("ib_send_lat", "-s", "8", *QUICK), (Want(1.6, "UCX tag_lat 8 B"),)),
    Row("ib_send_lat -s 4096", "us", latency("ib_send_lat", "-s", "4096", *QUICK), (Want(1.0, "UCX tag_lat 4 KiB"),)),
    Row("ib_write_lat -s 8, own malloc", "us", latency("ib_write_lat", "-s", "8", *QUICK), (Want(1.5),),
        ("process_vm_writev 8 B",)),
    Row("ib_write_lat -s 8, shared memory", "us", latency_in_shared_memory("ib_write_lat", "-s", "8", *QUICK),
        (Want(2.5, "flag"),), ("UCX put_lat 8 B",)),
    Row("ib_write_lat -s 8, --shared-memory", "us", latency_with_shared_memory("ib_write_lat", "-s", "8", *QUICK),
        (Want(2.5, "flag"),)),
    Row("ib_atomic_lat, shared memory", "us", latency_in_shared_memory("ib_atomic_lat", *QUICK), (), ("flag",)),
    Row("ib_read_lat, shared memory", "us", latency_in_shared_memory("ib_read_lat", "-s", "8", *QUICK), (), ("flag",)),
    Row("ib_read_lat, target asleep", "us", latency("ib_read_lat", "-s", "8", *QUICK), (Want(1.6),), ("process_vm_readv 8 B",)),
    Row("ib_atomic_lat, target asleep", "us", latency("ib_atomic_lat", *QUICK), (Want(1.6),), ("process_vm_readv 8 B",)),
    Row("ib_write_bw 1 MiB", "GB/s", bandwidth("ib_write_bw", *LARGE),
        (Want(0.7, "two-copy ring"), Want(1.0, "UCX tag_bw 1 MiB"), Want(1.0, "UCX tag_bw 1 MiB, cma")),
        ("process_vm_writev 1 MiB",)),
    Row("ib_send_bw 1 MiB", "GB/s", bandwidth("ib_send_bw", *LARGE),
        (Want(0.7, "two-copy ring"), Want(1.0, "UCX tag_bw 1 MiB"), Want(1.0, "UCX tag_bw 1 MiB, cma"))),
    Row("ib_read_bw 1 MiB", "GB/s", bandwidth("ib_read_bw", *LARGE), (Want(0.8, "process_vm_readv 1 MiB"),)),
    Row("ib_send_bw -s 8, one QP", "M/s", message_rate("ib_send_bw", *SMALL), (Want(8),)),
    Row("ib_send_bw -s 8 -l 16, one QP", "M/s", message_rate("ib_send_bw", *SMALL, "-l", "16"), (Want(20),)),
    Row("ib_send_lat -e -s 8, both sleep", "us", latency("ib_send_lat", "-e", "-s", "8", "-n", "5000"), (Want(1.3, "eventfd"),),
        ("eventfd, 1 us of work each", "eventfd, pinned apart")),
    Row("Open MPI, UCX rc, 8 B", "us", open_mpi("half_round_trip_8"), (Want(1.0),), ("Open MPI's own 8 B",)),
    Row("Open MPI, UCX rc, 1 MiB", "GB/s", open_mpi("stream_1MiB"), (Want(10),), ("Open MPI's own 1 MiB",)),
    Row("Open MPI, UCX rc, 1 MiB to and fro", "GB/s", open_mpi("ping_pong_1MiB"), ()),
)


def shown(value, unit):
    return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"


def reason(error):
    if isinstance(error, Missing):
        return f"left out, not installed: {error}"
    return f"failed: {str(error).strip()[-900:]}"


class Report:
    def __init__(self, bench, rounds, guests):
        self.bench = bench
        self.rounds = rounds
        self.guests = guests
        self.flags = []  # the flag in each round, in ns
        self.reached = self.missed = 0

    def peer(self, name):
        """Measures a peer once. Returns its figure, or the exception if it could not be measured."""
        try:
            value = self.guests.without(lambda: PEERS[name][1](self.bench))
        except (Missing, RuntimeError) as error:
            return error
        if name == "flag":
            self.flags.append(value * 1000)
        return value

    @staticmethod
    def median_of_peer(values):
        """The median, or the first exception among the values."""
        errors = [value for value in values if not isinstance(value, float)]
        return errors[0] if errors else statistics.median(values)

    def show_peer(self, name):
        median = self.median_of_peer([self.peer(name) for _ in range(self.rounds)])
        print(f"  {name:<36} {shown(median, PEERS[name][0]) if isinstance(median, float) else reason(median)}", flush=True)

    def show(self, row):
        names = [*dict.fromkeys(["flag", *(want.peer for want in row.wants if want.peer), *row.beside])]
        peers, ours = {name: [] for name in names}, []
        try:
            for _ in range(self.rounds):
                for name in names:
                    peers[name].append(self.peer(name))
                ours.append(self.guests.without(lambda: row.measure(self.bench)))
        except (Missing, RuntimeError) as error:
            print(f"{row.name:<36} {reason(error)}", flush=True)
            return
        median = statistics.median(ours)
        medians = {name: self.median_of_peer(values) for name, values in peers.items()}
        lines = [self.verdict(row, want, median, medians) for want in row.wants]
        lines += [self.comparison(name, median, medians) for name in row.beside]
        print(f"{row.name:<36} {shown(median, row.unit):>12}   {lines[0] if lines else ''}", flush=True)
        for line in lines[1:]:
            print(f"{'':<52}{line}", flush=True)

    def verdict(self, row, want, ours, medians):
        sense = "<=" if row.smaller_is_better else ">="
        peer = medians[want.peer] if want.peer else None
        if isinstance(peer, Exception):
            return f"{self.comparison(want.peer, ours, medians)}; wanted {sense} {want.bound:g} x"
        good = want.reached(ours, peer, row.smaller_is_better)
        self.reached += good
        self.missed += not good
        how = "reached" if good else "missed"
        if not want.peer:
            return f"{'':<49} wanted {sense} {want.bound:g} {row.unit}: {how}"
        return f"{self.comparison(want.peer, ours, medians)} wanted {sense} {want.bound:g} x: {how}"

    @staticmethod
    def comparison(name, ours, medians):
        peer = medians[name]
        if isinstance(peer, Exception):
            return f"{name:<24} {reason(peer)}"
        return f"{name:<24} {shown(peer, PEERS[name][0]):>11} {'x':>3} {ours / peer:<8.3g}"

    def end(self):
        if self.flags:
            flag = statistics.median(self.flags)
            how = "near each other" if flag < NEAR_NS else "far apart" if flag < BUSY_NS else "busy with other work"
            print(f"\nflag, over the whole run: {flag:.0f} ns ({min(self.flags):.0f} to {max(self.flags):.0f}): the two processors "
                  f"are {how}")
        print(self.guests.report())
        print(f"{self.reached} wanted figures reached, {self.missed} missed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--only", action="append", metavar="ROW", help="measure rows whose name contains ROW only; default: all rows and peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=15, metavar="SECONDS",
                        help="maximum time for repeating a measurement that other guests disturbed; 0: do not check for them")
    parser.add_argument("--netdev", choices=("lo", "eth0"), default="lo", help="network device: loopback only, or one end of a veth pair")
    harness.add_route_option(parser)
    options = parser.parse_args()
    harness.require_root()
    harness.require_programs("ip", "setpriv")
    rows = [row for row in ROWS if not options.only or any(word in row.name for word in options.only)]
    if not rows:
        sys.exit("no such row; there are: " + "; ".join(row.name for row in ROWS))

    with harness.Hosts(options.build, options.route) as hosts, tempfile.TemporaryDirectory(prefix="verbena-one-host-") as folder:
        pathlib.Path(folder).chmod(0o755)
        bench = Bench(hosts, options, folder)
        report = Report(bench, options.rounds, OtherGuests(bench.limits_program, options.patience))
        seen = harness.routes(bench.host, bench.host) if shutil.which("ib_write_bw") else []
        said = ", ".join(route or "nothing" for route in seen) or "no traffic seen"
        print(f"requested route: {options.route}; routes shown by verbena status: {said}\n")
        if not options.only:
            print("limits of this machine, and other libraries")
            for name in PEERS:
                report.show_peer(name)
            print()
        for row in rows:
            report.show(row)
        report.end()


if __name__ == "__main__":
    main()
