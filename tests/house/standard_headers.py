#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""standard_headers.py ROOT: a file of src/ includes the standard headers of the names it uses, directly or through our own
headers. With each release, the standard library's headers include fewer others, so newer compilers report missing includes."""

import pathlib
import re
import sys

import source_tree

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
COMMENT = re.compile(r"//.*")
# Header -> names that only this header declares. Names in several headers, such as std::size, are left out.
NAMES = {header: re.compile(rf"\bstd::(?:{names})") for header, names in {
    "algorithm": r"(?:sort|stable_sort|min|max|clamp|find|find_if|any_of|all_of|none_of|copy|copy_n|fill|fill_n|equal|lower_bound|"
                 r"upper_bound|count|count_if|transform|remove_if|max_element|min_element|reverse|rotate|unique)\(",
    "array": r"array<", "atomic": r"atomic\b|memory_order", "bit": r"(?:bit_cast|popcount|countr_zero|bit_ceil|bit_width|endian)\b",
    "charconv": r"(?:from|to)_chars\b", "condition_variable": r"condition_variable\b", "deque": r"deque<",
    "cstdio": r"(?:printf|fprintf|snprintf|vsnprintf|sscanf|fputs|fopen|fclose|fgets|FILE)\b",
    "cstdlib": r"(?:getenv|strto\w+|abort|exit|_Exit|free|malloc|calloc)\b",
    "cstring": r"(?:mem(?:cpy|set|cmp|move|chr)|str(?:len|cmp|ncmp|chr|rchr|str|error))\b",
    "fstream": r"[io]?fstream\b", "functional": r"function<", "limits": r"numeric_limits\b", "map": r"(?:multi)?map<",
    "memory": r"(?:unique_ptr|shared_ptr|make_unique|make_shared)<", "mutex": r"(?:mutex|lock_guard|unique_lock|scoped_lock)\b",
    "new": r"(?:nothrow|bad_alloc|launder)\b", "numeric": r"(?:accumulate|iota|gcd|lcm)\b", "optional": r"optional<",
    "set": r"(?:multi)?set<", "span": r"span<", "thread": r"(?:thread|this_thread)\b", "tuple": r"(?:tuple<|tie\()",
    "unordered_map": r"unordered_map<", "variant": r"variant<", "vector": r"vector<",
}.items()}
C_NAMES = {"stdio.h": "cstdio", "stdlib.h": "cstdlib", "string.h": "cstring"}


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.own = {}

    def included(self, path):
        """The non-project headers that a file includes, directly or through project headers."""
        found, seen, waiting = set(), set(), [path]
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            if one not in self.own:
                self.own[one] = INCLUDE.findall(one.read_text(encoding="utf-8"))
            for name in self.own[one]:
                header = self.root / "src" / name
                if header.is_file():
                    waiting.append(header)
                else:
                    found.add(C_NAMES.get(name, name))
        return found


def main(root):
    tree, broken, checked = Tree(root), [], 0
    for path in source_tree.sources(root):
        name = path.relative_to(root)
        if name.parts[0] != "src" or path.suffix == ".c":
            continue
        checked += 1
        text = COMMENT.sub("", path.read_text(encoding="utf-8"))
        included = tree.included(path)
        for header, names in NAMES.items():
            used = names.search(text) if header not in included else None
            if used:
                line = text.count("\n", 0, used.start()) + 1
                broken.append(f"{name}:{line}: {used.group(0).rstrip('(<')} needs <{header}>")
    source_tree.report(broken, checked, "standard headers")


if __name__ == "__main__":
    main(sys.argv[1])
