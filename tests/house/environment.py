#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""environment.py ROOT: libraries and the agent read the environment with secure_getenv(3), because set-user-ID programs must
not trust it. Only command-line programs may call getenv(3)."""

import re
import sys

import source_tree

PLAIN = re.compile(r"(?<!secure_)\bgetenv\s*\(")
COMMANDS = ("src/commands/", "src/base/command_line/")
AGENT = "src/commands/agent/"


def main(root):
    broken, checked = [], 0
    for path in source_tree.sources(root):
        name = path.relative_to(root).as_posix()
        if not name.startswith("src/") or name.startswith(COMMANDS) and not name.startswith(AGENT):
            continue
        checked += 1
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if PLAIN.search(line):
                broken.append(f"{name}:{number}: getenv: call secure_getenv")
    source_tree.report(broken, checked, "environment")


if __name__ == "__main__":
    main(sys.argv[1])
