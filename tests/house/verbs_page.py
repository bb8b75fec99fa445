#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""verbs_page.py ROOT: docs/verbs.md has every function of verbs.h, once, and names tests that there are."""

import os
import pathlib
import re
import sys

import source_tree

HEADER = pathlib.Path(os.environ.get("VERBENA_VERBS_HEADER", "/usr/include/infiniband/verbs.h"))
ROW = re.compile(r"^\| (`ibv_\w+`.*?) \|.*\| ([^|]*) \|$")


def functions(header):
    """What looks called or declared: a name before a bracket, and no type."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    return {name for kind, name in re.findall(r"\b(enum |struct )?(ibv_[a-z0-9_]+)\s*\(", text) if not kind}


def main(root):
    if not HEADER.exists():
        print(f"verbs_page: {HEADER} is not there")
        sys.exit(77)
    root = pathlib.Path(root)
    wanted = functions(HEADER.read_text(encoding="utf-8"))
    broken, seen = [], set()
    for number, line in enumerate((root / "docs/verbs.md").read_text(encoding="utf-8").splitlines(), 1):
        row = ROW.match(line)
        if not row:
            continue
        for verb in re.findall(r"`(ibv_\w+)`", row[1]):
            if verb in seen:
                broken.append(f"docs/verbs.md:{number}: {verb} has a row already")
            if verb not in wanted:
                broken.append(f"docs/verbs.md:{number}: {verb} is not in verbs.h")
            seen.add(verb)
        tests = re.findall(r"`([\w/]+(?:_test\.cc)?)`", row[2])
        if not tests:
            broken.append(f"docs/verbs.md:{number}: no test")
        for test in tests:
            if "/" in test and not (root / "tests" / test).exists():
                broken.append(f"docs/verbs.md:{number}: there is no tests/{test}")
    broken += [f"docs/verbs.md: {verb} is missing" for verb in sorted(wanted - seen)]
    source_tree.report(broken, len(wanted), "verbs_page")


if __name__ == "__main__":
    main(sys.argv[1])
