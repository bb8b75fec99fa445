#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""licence.py ROOT: every source file names its licence in the first line (scripts: in the second)."""

import sys

import source_tree

LINES = {
    "// SPDX-License-Identifier: Apache-2.0",
    "# SPDX-License-Identifier: Apache-2.0",
    "/* SPDX-License-Identifier: Apache-2.0 */",
}


def names_licence(text):
    lines = text.split("\n", 2)
    if lines[0].startswith("#!"):
        lines = lines[1:]
    return bool(lines) and lines[0].rstrip() in LINES


def main(root):
    paths = source_tree.commented(root)
    broken = [f"{path.relative_to(root)}:1: no SPDX-License-Identifier line" for path in paths
              if not names_licence(path.read_text(encoding="utf-8"))]
    source_tree.report(broken, len(paths), "licence")


if __name__ == "__main__":
    main(sys.argv[1])
