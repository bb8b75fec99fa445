#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""words.py ROOT: no file names paths outside the project, package mirrors, or leftover notes. Prose is plain English, without
the words listed here."""

import re
import sys

import source_tree

# Both lists are split into pieces, so that this file passes its own check.
FORBIDDEN = [re.compile(pattern) for pattern in (
    r"/wo" r"rk/", r"(?<!\w)/ro" r"ot/", r"/ho" r"me/\w", r"/tm" r"p/rc\b", r"\bTO" r"DO\b", r"\bFIX" r"ME\b", r"\bXX" r"X\b",
    r"\{PROJECT_SOURCE_DIR\}/\.\.", r"\b(?:deb|ftp|archive|snapshot|security)\.(?:\w+\.)*(?:deb" r"ian|ubu" r"ntu)\.\w+",
)]
# Words to avoid: name the role ("the caller", "the application thread") or use the common word. Test names are checked too.
NOT_PLAIN = [re.compile(pattern, re.IGNORECASE) for pattern in (
    r"who" r"ever", r"who" r"soever", r"\ble" r"st\b", r"\b(?:is|are|be) bor" r"ne\b", r"(?:Is|Are)Bor" r"ne",
    r"\bfor ev" r"er\b", r"\bbe ha" r"d\b", r"\bane" r"w\b",
    r"\bhow-?many" r"th\b", r"\bhow-?mani" r"eth\b", r"\bhim" r"self\b",
)]
PROSE = {".md", ".txt", ".json", ".pc", ".in", ".yml", ".service"}


def main(root):
    broken, checked = [], 0
    for path in sorted(set(source_tree.commented(root))
                       | {path for path in source_tree.files(root) if path.suffix in PROSE}):
        checked += 1
        name = path.relative_to(root)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for pattern in FORBIDDEN + NOT_PLAIN:
                if found := pattern.search(line):
                    broken.append(f"{name}:{number}: '{found.group()}'")
    source_tree.report(broken, checked, "words")


if __name__ == "__main__":
    main(sys.argv[1])
