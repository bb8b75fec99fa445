#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of forwarding: packets that the agent receives and forwards to a program, instead of the program's own socket.

    forwarded.py --build build/release [--rounds 3]

Programs of an ordinary user under root's agent get their packets forwarded. The same programs under an agent of their own have
sockets. Each round runs both in turn, because load on a shared machine disturbs both; the ratio is that of the medians. The two
ends are namespaces joined by a veth pair.
"""

import argparse
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "conformance"))
import harness  # noqa: E402
import run_users  # noqa: E402
import wire_speed  # noqa: E402

# name, unit, perftest's command, column of the figure, factor that converts it to the unit
CASES = [
    ("RDMA WRITE 1 MiB, path MTU 4096", "Gb/s", ("ib_write_bw", "-s", "1048576", "-n", "4000", "-m", "4096"), 3, wire_speed.GIGABITS),
    ("RDMA WRITE 1 MiB, path MTU 1024", "Gb/s", ("ib_write_bw", "-s", "1048576", "-n", "2000", "-m", "1024"), 3, wire_speed.GIGABITS),
    ("RDMA READ 1 MiB, path MTU 4096", "Gb/s", ("ib_read_bw", "-s", "1048576", "-n", "2000", "-m", "4096"), 3, wire_speed.GIGABITS),
    ("RDMA WRITE 64 bytes", "M/s", ("ib_write_bw", "-s", "64", "-n", "200000", "-t", "128"), 4, 1),
    ("SEND 64 bytes, half round trip (less is better)", "us", ("ib_send_lat", "-s", "64", "-n", "20000"), 4, 1),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    harness.require_root()
    harness.require_programs("ib_write_bw", "ib_read_bw", "ib_send_lat", "setpriv")
    with harness.Hosts(options.build) as hosts:
        with_sockets, forwarded = hosts.two(9000), hosts.two(9000)
        for host in forwarded:
            run_users.start_agent(host)
        for name, unit, command, column, factor in CASES:
            rounds = [[wire_speed.perftest(pair, False, command)[column] * factor for pair in (with_sockets, forwarded)]
                      for _ in range(options.rounds)]
            directly, indirectly = (statistics.median(column) for column in zip(*rounds))
            print(f"{name:<48} own socket {directly:7.2f} {unit:<4}  forwarded {indirectly:7.2f} {unit:<4}  "
                  f"ratio {indirectly / directly:.2f}", flush=True)


if __name__ == "__main__":
    main()
