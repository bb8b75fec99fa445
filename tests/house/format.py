#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""format.py ROOT: clang-format would change nothing. Releases format differently, so Debian 12's release decides. Exits with
77 (skipped) if that release is not installed."""

import re
import shutil
import subprocess
import sys

import source_tree

RELEASE = 14
SKIPPED = 77


def find_program():
    """The clang-format of the right release, or None."""
    for program in filter(None, map(shutil.which, (f"clang-format-{RELEASE}", "clang-format"))):
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        if re.search(rf"version {RELEASE}\.", said):
            return program
    return None


def main(root):
    program = find_program()
    if not program:
        print(f"format: skipped, no clang-format {RELEASE} here")
        sys.exit(SKIPPED)
    paths = [str(path) for path in source_tree.sources(root)]
    broken = []
    if paths:
        ran = subprocess.run([program, "--dry-run", "-Werror", "--style=file", *paths],
                             capture_output=True, text=True, check=False)
        if ran.returncode:
            broken = [line for line in ran.stderr.splitlines() if ": error: " in line] or [ran.stderr]
    source_tree.report(broken, len(paths), "format")


if __name__ == "__main__":
    main(sys.argv[1])
