#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""failure_test.py BUILD [--every N]: runs a program that uses each kind of object, once per library call for memory, a
descriptor or a thread. In each run this call fails, or all calls from it on. The program must get an error or be unaffected.
It must never crash, hang, or leak descriptors."""

import argparse
import os
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
import harness  # noqa: E402

SECONDS = 30
ALL_WELL, REFUSED = 0, 3


class Failures:
    def __init__(self, host, build):
        tests = pathlib.Path(build).resolve() / "tests"
        self.host = host
        self.shim = tests / "libfailing_calls.so"
        self.program = tests / "all_verbs"
        self.left = 1000  # maximum open descriptors at the end; count() sets it

    def run(self, **environment):
        """(exit status or None, output)"""
        with_shim = f'LD_PRELOAD="{self.shim}${{LD_PRELOAD:+:$LD_PRELOAD}}" exec "$@"'
        return self.host.run("sh", "-c", with_shim, "sh", self.program, self.host.ipv4, self.left, seconds=SECONDS, environment=environment)

    def count(self):
        """Returns the number of calls in a run without failures, and records the open descriptors at its end."""
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            file = pathlib.Path(folder) / "count"
            status, output = self.run(VERBENA_TEST_COUNT=str(file))
            if status != ALL_WELL:
                sys.exit(f"all_verbs fails although no call fails: {status}\n{output}")
            self.left = self.descriptors(output)
            return int(file.read_text(encoding="ascii"))

    @staticmethod
    def descriptors(output):
        """The number of open descriptors at the end; None if the program did not get there."""
        counted = re.search(r"^descriptors (\d+)$", output, re.MULTILINE)
        return int(counted[1]) if counted else None

    def wrong(self, variable, number):
        """Fails call `number` and returns a complaint, or None."""
        status, output = self.run(**{variable: str(number)})
        if status not in (ALL_WELL, REFUSED):
            return f"{'it hangs' if status is None else f'exit status {status}'}\n{output}"
        left = self.descriptors(output)
        if left is None:
            return f"it does not reach its end\n{output}"
        if left > self.left:
            return f"{left} descriptors are left, not {self.left}\n{output}"
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="test every N-th call only")
    parser.add_argument("--first", type=int, default=1, metavar="N", help="begin with the N-th call")
    harness.add_route_option(parser)
    options = parser.parse_args()
    harness.require_root()
    harness.require_programs("ip", "setpriv")
    judge = harness.Judge()
    with harness.Hosts(options.build, options.route) as hosts:
        failures = Failures(hosts.one(), options.build)
        count = failures.count()
        print(f"{count} calls")
        for variable in ("VERBENA_TEST_FAIL_AT", "VERBENA_TEST_FAIL_FROM"):
            tried, bad = 0, 0
            for number in range(options.first, count + 1, options.every):
                tried += 1
                if wrong := failures.wrong(variable, number):
                    bad += 1
                    judge.say(f"{variable}={number}", wrong)
            judge.say(f"{variable}: {tried} tried", f"{bad} wrong" if bad else None)
    judge.exit()


if __name__ == "__main__":
    main()
