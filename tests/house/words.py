#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""words.py ROOT: the project speaks of itself alone: no path of the machine it was written on, no notes left."""

import re
import sys

import source_tree

# Written in pieces, so that this file does not break its own rule.
FORBIDDEN = [re.compile(pattern) for pattern in (
    r"/wo" r"rk/", r"/ro" r"ot/", r"/ho" r"me/\w", r"/tm" r"p/rc\b", r"\bTO" r"DO\b", r"\bFIX" r"ME\b", r"\bXX" r"X\b",
)]
PROSE = {".md", ".txt", ".json", ".pc", ".in", ".yml", ".service"}


def main(root):
    broken, checked = [], 0
    for path in sorted(set(source_tree.commented(root))
                       | {path for path in source_tree.files(root) if path.suffix in PROSE}):
        checked += 1
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for pattern in FORBIDDEN:
                if found := pattern.search(line):
                    broken.append(f"{path.relative_to(root)}:{number}: '{found.group()}'")
    source_tree.report(broken, checked, "words")


if __name__ == "__main__":
    main(sys.argv[1])
