#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares an unmodified RDMA program with bare UDP sockets, over a veth pair between two namespaces.

    wire_speed.py --build build/release [--rounds 3] [--realtime] [--patience 15]

Each round measures bare sockets and perftest's programs in turn, because load on a shared machine disturbs both. The ratio is that
of the medians. --realtime runs everything with real-time priority (SCHED_RR), which keeps other load out of the figures.
The processors of a virtual machine are far from each other at times, and then copy a third as much as near ones. Disturbed
measurements are repeated for up to --patience seconds (other_guests.py). --patience 0 accepts the first result.
"""

import argparse
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "conformance"))
import harness  # noqa: E402
from other_guests import OtherGuests  # noqa: E402

GIGABITS = 8 * 1.048576 / 1000  # perftest counts MiB

NUMBER = r"(\d+(?:\.\d+)?)"


def blaster(build, realtime, *arguments):
    command = [*(["chrt", "-r", "1"] if realtime else []), pathlib.Path(build) / "bin" / "wire_blaster", "--veth",
               "--rounds", "1", *arguments]
    return harness.sh(*command)


def raw_rate(build, realtime, payload):
    return float(re.search(rf"raw\s+{NUMBER} Gb/s", blaster(build, realtime, "--payload", payload, "raw")).group(1))


def raw_half_round_trip(build, realtime):
    return float(re.search(rf"raw\s+half round trip {NUMBER} us", blaster(build, realtime, "pingpong")).group(1))


def perftest(hosts, realtime, command):
    server, client = hosts
    device, index = "rxe_eth0", client.gid_index(client.ipv4, "rxe_eth0")
    user = [*(["chrt", "-r", "1"] if realtime else []), *harness.ordinary_user()]
    result = harness.pair(server, client, [*command, "-d", device, "-x", str(index), "-F"], address=server.ipv4,
                          wrap=lambda host, *program: host.verbena("run", *program, user=user))
    if not result.good:
        sys.exit(result.report())
    figures = [line.split() for line in result.client.output.splitlines() if re.match(r"\s*\d+\s+\d+\s+\d", line)]
    return [float(word) for word in figures[-1]]


def measure(guests, name, unit, bare, ours, rounds, smaller_is_better=False):
    pairs = [(guests.without(bare), guests.without(ours)) for _ in range(rounds)]
    bare_median = statistics.median(pair[0] for pair in pairs)
    our_median = statistics.median(pair[1] for pair in pairs)
    print(f"{name:<44} bare UDP {bare_median:8.2f} {unit:<5} Verbena {our_median:8.2f} {unit:<5} "
          f"ratio {our_median / bare_median:.2f}{' (lower is better)' if smaller_is_better else ''}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--realtime", action="store_true", help="run with real-time priority")
    parser.add_argument("--patience", type=float, default=15,
                        help="maximum seconds for repeating a disturbed measurement; 0: never repeat")
    options = parser.parse_args()
    harness.require_root()
    harness.require_programs("ib_write_bw", "ib_send_lat", "setpriv", "chrt")
    build, realtime, rounds = options.build, options.realtime, options.rounds
    guests = OtherGuests(pathlib.Path(build) / "bin" / "one_host_limits", options.patience)

    with harness.Hosts(build) as hosts:
        pair = hosts.two(9000)
        for mtu in (4096, 1024):
            measure(guests, f"RDMA WRITE 1 MiB, path MTU {mtu}", "Gb/s", lambda m=mtu: raw_rate(build, realtime, m),
                    lambda m=mtu: perftest(pair, realtime, ["ib_write_bw", "-s", "1048576", "-n", "2000", "-m", str(m)])[3]
                    * GIGABITS, rounds)
        measure(guests, "SEND 64 bytes, half round trip", "us", lambda: raw_half_round_trip(build, realtime),
                lambda: perftest(pair, realtime, ["ib_send_lat", "-s", "64", "-n", "20000"])[4], rounds, True)
        small = ["ib_write_bw", "-s", "64", "-n", "200000", "-t", "128"]
        rates = [guests.without(lambda: perftest(pair, realtime, small)[4]) for _ in range(rounds)]
        print(f"{'RDMA WRITE 64 bytes, one QP':<44} {statistics.median(rates):.2f} million messages a second")
    print(guests.report())


if __name__ == "__main__":
    main()
