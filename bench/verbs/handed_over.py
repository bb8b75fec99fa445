#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs that packets are handed over: programs of an ordinary user under root's agent, which get what the agent reads for
them, beside the same programs under an agent of their own, which have sockets. Over veth pairs between two namespaces.

    handed_over.py --build build/release [--rounds 3]

Each round runs both in turn, because a shared machine disturbs both; the medians of the rounds make the ratio.
"""

import argparse
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "conformance"))
import harness  # noqa: E402
import run_users  # noqa: E402
import wire_speed  # noqa: E402

# name, unit, perftest's command, the column of its figure, what that is to be multiplied with
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
        lent, handed = hosts.two(9000), hosts.two(9000)
        for host in handed:
            run_users.start_agent(host)
        for name, unit, command, column, factor in CASES:
            rounds = [[wire_speed.perftest(pair, False, command)[column] * factor for pair in (lent, handed)]
                      for _ in range(options.rounds)]
            with_sockets, without = (statistics.median(column) for column in zip(*rounds))
            print(f"{name:<48} socket lent {with_sockets:7.2f} {unit:<4}  handed over {without:7.2f} {unit:<4}  "
                  f"ratio {without / with_sockets:.2f}", flush=True)


if __name__ == "__main__":
    main()
