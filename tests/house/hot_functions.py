#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hot_functions.py ROOT: for each line of src/libraries/libibverbs/hot_functions.txt, the named class and function are still
in one source file."""

import pathlib
import re
import sys

import source_tree

LIST = "src/libraries/libibverbs/hot_functions.txt"


def words_of(name):
    """(class or None, function) of a name such as verbena::folder::Class<>::function<>."""
    parts = [part.removesuffix("<>") for part in name.split("::")]
    outer = parts[-2] if len(parts) > 1 and parts[-2][:1].isupper() else None
    return [part.lstrip("~") for part in (outer, parts[-1]) if part]


def main(root):
    root = pathlib.Path(root)
    path = root / LIST
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    texts = [source.read_text(encoding="utf-8") for source in source_tree.sources(root) if source.is_relative_to(root / "src")]
    known = [set(re.findall(r"\w+", text)) for text in texts]
    names = [(number, line) for number, line in enumerate(lines, 1) if line and not line.startswith("#")]
    broken = [f"{LIST}:{number}: there is no {name}" for number, name in names
              if not any(known_words.issuperset(words_of(name)) for known_words in known)]
    source_tree.report(broken, len(names), "hot functions")


if __name__ == "__main__":
    main(sys.argv[1])
