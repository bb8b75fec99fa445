#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs all tests with Debian's programs that have both ends on one host, repeatedly over the local route, and counts the
results.

    rounds.py --build build/release --rounds 100
    rounds.py --build build/release --rounds 3 --only 'ucx|open_mpi' --keep rounds.out

Each round runs the conformance.* tests of ctest that use one host and not the wire: perftest, the pingpong programs,
librdmacm's programs, rsockets, rdma-core's own tests, UCX, libfabric, Open MPI. A round continues after a failure. Failures
are printed with their output, and the exit status is then 1. VERBENA_CONFORMANCE_SHARE=K/N selects a part of the matrices.
Without it, round R runs part R/N, where N is given by --parts, so N rounds cover everything.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import harness

# Names in ctest of the tests with both ends on one host.
OF_ONE_HOST = re.compile(r"conformance\.(one_host\.|pyverbs\.|rsockets\.one_host$|ucx$|libfabric$|open_mpi$|routes$)")


def tests_of(build, only):
    listed = json.loads(harness.sh("ctest", "--test-dir", build, "--show-only=json-v1", "-R", r"^conformance\."))
    names = [test["name"] for test in listed["tests"]]
    return [name for name in names if OF_ONE_HOST.match(name) and re.search(only, name)]


def run(build, name, environment):
    """Runs one ctest entry: ('passed', 'skipped' or 'failed', output)."""
    ran = subprocess.run(["ctest", "--test-dir", str(build), "--output-on-failure", "-R", f"^{re.escape(name)}$"],
                         capture_output=True, text=True, errors="replace", env=environment, check=False)
    if "***Skipped" in ran.stdout:
        return "skipped", ran.stdout
    passed = ran.returncode == 0 and "100% tests passed" in ran.stdout
    return ("passed" if passed else "failed"), ran.stdout + ran.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, such as build/release")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="number of rounds")
    parser.add_argument("--parts", type=int, default=1, metavar="N", help="split the matrices into N parts and run one per round")
    parser.add_argument("--only", default="", metavar="REGEX", help="run only tests whose name matches")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no test after this time")
    parser.add_argument("--keep", metavar="FILE", help="write the output of failed tests to FILE too")
    options = parser.parse_args()
    harness.require_root()

    build = pathlib.Path(options.build).resolve()
    names = tests_of(build, options.only)
    if not names:
        sys.exit("rounds: no test has such a name")
    began = time.monotonic()
    tally = {name: collections.Counter() for name in names}
    whole = 0
    for number in range(1, options.rounds + 1):
        environment = {"VERBENA_CONFORMANCE_SHARE": f"{number}/{options.parts}", **os.environ}
        environment.pop("VERBENA_LOCAL", None)
        bad = []
        for name in names:
            if time.monotonic() - began > options.seconds:
                break
            result, output = run(build, name, environment)
            tally[name][result] += 1
            if result == "failed":
                bad.append(name)
                print(f"=== round {number}: {name}\n{output}", flush=True)
                if options.keep:
                    with open(options.keep, "a", encoding="utf-8") as kept:
                        kept.write(f"=== round {number}: {name}\n{output}\n")
        else:
            whole += 1
        print(f"round {number}: {'failed: ' + ' '.join(bad) if bad else 'ok'} ({time.monotonic() - began:.0f} s so far)", flush=True)
        if time.monotonic() - began > options.seconds:
            break

    print(f"\n{whole} whole rounds")
    for name, counts in tally.items():
        print(f"{name:60} " + ", ".join(f"{counts[word]} {word}" for word in ("passed", "failed", "skipped") if counts[word]))
    sys.exit(1 if any(counts["failed"] for counts in tally.values()) else 0)


if __name__ == "__main__":
    main()
