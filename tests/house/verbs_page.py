#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""verbs_page.py ROOT: docs/verbs.md and docs/rdmacm.md list every function of their headers exactly once, and name only tests
that exist."""

import os
import pathlib
import re
import sys

import source_tree

INCLUDE = pathlib.Path("/usr/include")
VERBS = pathlib.Path(os.environ.get("VERBENA_VERBS_HEADER", INCLUDE / "infiniband/verbs.h"))
# Each page: prefix of the functions, and the headers that declare them. Headers below src/ are ours, for newer functions.
PAGES = {
    "docs/verbs.md": ("ibv_", (VERBS,)),
    "docs/rdmacm.md": ("rdma_", (INCLUDE / "rdma/rdma_cma.h", INCLUDE / "rdma/rdma_verbs.h", "src/libraries/librdmacm/events.h")),
}
# Later headers also declare the exported functions in this list, and two that are inline or private.
NEWER = "tests/libraries/libibverbs/abi/libibverbs.so.1.newer.syms"
NEWER_BESIDES = {"ibv_wr_flush", "ibv_wr_opcode_str"}


def newer_functions(symbols):
    """The functions with public symbol versions, under their names in the headers."""
    return {name.lstrip("_") for name in re.findall(r"^(\w+)@@IBVERBS_1\.", symbols, re.MULTILINE)} | NEWER_BESIDES


def functions(header, prefix):
    """Names that are called or declared: before an opening bracket, and not types."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header, flags=re.DOTALL)
    return {name for kind, name in re.findall(rf"\b(enum |struct )?({prefix}[a-z0-9_]+)\s*\(", text) if not kind}


def check(root, page, prefix, wanted):
    row_of = re.compile(rf"^\| (`{prefix}\w+`.*?) \|.*\| ([^|]*) \|$")
    broken, seen = [], set()
    for number, line in enumerate((root / page).read_text(encoding="utf-8").splitlines(), 1):
        row = row_of.match(line)
        if not row:
            continue
        for name in re.findall(rf"`({prefix}\w+)`", row[1]):
            if name in seen:
                broken.append(f"{page}:{number}: {name} has a row already")
            if name not in wanted:
                broken.append(f"{page}:{number}: {name} is not in the header")
            seen.add(name)
        tests = re.findall(r"`([\w/]+(?:_test\.cc)?)`", row[2])
        if not tests:
            broken.append(f"{page}:{number}: no test")
        for test in tests:
            if "/" in test and not (root / "tests" / test).exists():
                broken.append(f"{page}:{number}: there is no tests/{test}")
    return broken + [f"{page}: {name} is missing" for name in sorted(wanted - seen)]


def main(root):
    root = pathlib.Path(root)
    broken, checked = [], 0
    for page, (prefix, headers) in PAGES.items():
        paths = [root / header for header in headers]  # absolute paths stay as they are
        absent = [path for path in paths if not path.exists()]
        if absent:
            print(f"verbs_page: {absent[0]} is not there")
            sys.exit(77)
        wanted = set().union(*(functions(path.read_text(encoding="utf-8"), prefix) for path in paths))
        if prefix == "ibv_":
            wanted |= newer_functions((root / NEWER).read_text(encoding="utf-8"))
        broken += check(root, page, prefix, wanted)
        checked += len(wanted)
    source_tree.report(broken, checked, "verbs_page")


if __name__ == "__main__":
    main(sys.argv[1])
