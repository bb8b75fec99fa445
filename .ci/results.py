#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""results.py BUILD [--count]: prints the tests that failed in the latest run of ctest in BUILD, even if the run was cut short.

ctest writes its list of failures only when it ends, so this reads its log: LastTest.log.tmp while ctest runs, else LastTest.log.
--count: prints the number of tests that ended instead.
"""

import pathlib
import re
import sys

BEGIN = re.compile(r"^\d+/\d+ Testing: (.*)$")
END = re.compile(r"^Test (Passed|Failed)\.$")


def results(build):
    """Yields (name, whether it passed) of each test that ended, in the order of the log."""
    folder = pathlib.Path(build) / "Testing" / "Temporary"
    logs = [path for path in (folder / "LastTest.log.tmp", folder / "LastTest.log") if path.exists()]
    name = None
    for line in logs[0].read_text(encoding="utf-8", errors="replace").splitlines() if logs else []:
        if found := BEGIN.match(line):
            name = found[1]
        elif (found := END.match(line)) and name is not None:
            yield name, found[1] == "Passed"
            name = None


def main(build, *options):
    ended = list(results(build))
    if "--count" in options:
        print(len(ended))
    else:
        print("".join(f"{name}\n" for name, passed in ended if not passed), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
