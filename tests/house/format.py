#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""format.py ROOT: clang-format has nothing to change. Exits 77 (skipped) where there is no clang-format."""

import shutil
import subprocess
import sys

import source_tree

SKIPPED = 77


def main(root):
    program = shutil.which("clang-format")
    if not program:
        print("format: skipped, no clang-format here")
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
