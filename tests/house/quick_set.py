#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quick_set.py ROOT: every folder of tests/ that contains tests has a line in tests/quick.txt."""

import pathlib
import sys

import source_tree


def is_within(folder, named):
    """Whether a parent folder is listed and the folder itself is not, so that the parent's line covers it."""
    return any(parent.as_posix() in named for parent in pathlib.PurePath(folder).parents) and folder not in named


def main(root):
    tests = pathlib.Path(root) / "tests"
    lines = [line.split(":", 1) for line in (tests / "quick.txt").read_text(encoding="utf-8").splitlines()
             if ":" in line and not line.startswith("#")]
    named = {folder: rest.split() for folder, rest in lines}
    folders = {folder for folder in (path.parent.relative_to(tests).as_posix() for path in tests.rglob("CMakeLists.txt"))
               if folder != "." and not is_within(folder, named)}
    broken = [f"tests/quick.txt: no line for tests/{folder}" for folder in sorted(folders - named.keys())]
    broken += [f"tests/quick.txt: there is no tests/{folder}" for folder in sorted(named.keys() - folders)]
    broken += [f"tests/quick.txt: nothing is named for tests/{folder}" for folder, names in sorted(named.items())
               if not names or names == ["-"]]
    source_tree.report(broken, len(folders), "quick set")


if __name__ == "__main__":
    main(sys.argv[1])
