#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""real_time.py ROOT: tests/real_time.txt lists every test whose result depends on timing, with the reason.

Such a test sleeps, or compares a measured duration with a bound. Waiting for a condition with a deadline does not count: on a
busy machine it takes longer, but its result is the same.
"""

import pathlib
import re
import sys

import source_tree

TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.MULTILINE)
MEASURES = re.compile(r"\b(?:sleep_for|sleep_until|usleep|nanosleep)\(|(?:EXPECT|ASSERT)_(?:LT|LE|GT|GE)\([^;]*\bnow\(\)\s*-")


def listed(root):
    lines = (pathlib.Path(root) / "tests" / "real_time.txt").read_text(encoding="utf-8").splitlines()
    return {line.split()[1] for line in lines if not line.startswith("#") and len(line.split()) > 2}


def tests(text):
    """(name, body) of each test in a file."""
    found = list(TEST.finditer(text))
    for test, following in zip(found, found[1:] + [None]):
        yield f"{test[1]}.{test[2]}", text[test.start():following.start() if following else len(text)], text.count("\n", 0, test.start()) + 1


def main(root):
    root, known, broken, every, checked = pathlib.Path(root), listed(root), [], set(), 0
    for path in sorted((root / "tests").rglob("*_test.cc")):
        checked += 1
        for name, body, line in tests(path.read_text(encoding="utf-8")):
            every.add(name)
            if MEASURES.search(body) and name not in known:
                broken.append(f"{path.relative_to(root)}:{line}: {name} measures real time, and is not in tests/real_time.txt")
    broken += [f"tests/real_time.txt: there is no test {name}" for name in sorted(known - every)]
    source_tree.report(broken, checked, "real time")


if __name__ == "__main__":
    main(sys.argv[1])
