#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sentences.py ROOT: sentences in pages and comments begin with their subject and use the terms of docs/glossary.md.

It reports unclear openings and phrases, words that the glossary replaces, and lines over 120 columns in pages. Comments of
src/ are checked as a whole: openings are the beginning of the comment and of each sentence in it.
"""

import pathlib
import re
import sys

import source_tree

# These folders are exempt: they are being restructured, and their sentences will be rewritten then.
LATER = re.compile(r"^src/adapter/(?:engine|shm)/|^src/adapter/transport/requester")
OPENING = re.compile(r"(?:^|[.:] )(?:What|Who|Whom|Whose|Of|Such|So many|So much)\b(?! is\b[^.]*\?)(?! are\b[^.]*\?)")
PHRASE = re.compile(r"\b(?:of la" r"te|in va" r"in|as ev" r"er|asks? o" r"n|asked o" r"n|in the mid" r"st|an" r"ew|thereup" r"on|whereup" r"on|such a o" r"ne|"
                    r"for want o" r"f)\b", re.IGNORECASE)
REPLACED = re.compile(r"\b(?:Hol" r"es|Arriv" r"als|KeptPack" r"ets|DatagramRece" r"ipt|ToldFl" r"ow|PassedRequ" r"ests?|Prob" r"ing|Lum" r"ps|"
                      r"LeastRoundTr" r"ip|RoundMaxim" r"um|MarkedRa" r"te|Couri" r"er|kMo" r"st[A-Z]\w*)\b")
WIDEST = 120


def comments(text):
    """The comments of a C++ file: (line, text with its lines joined)."""
    start, parts = None, []
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"\s*//+\s?(.*)", line)
        trailing = None if found else re.search(r"\s//\s?(.*)", line)
        if found and not found[1].startswith(("----", "SPDX-")):
            start = start or number
            parts.append(found[1].strip())
            continue
        if parts:
            yield start, " ".join(parts)
            start, parts = None, []
        if trailing and '"' not in line[trailing.start():]:
            yield number, trailing[1].strip()
    if parts:
        yield start, " ".join(parts)


def page_lines(text):
    """The prose of a page, joined by paragraphs: (line, text)."""
    start, parts, is_code = None, [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            is_code = not is_code
        is_prose = line.strip() and not is_code and not line.startswith(("|", "#", "    ", "```", "<!--"))
        if is_prose and not re.match(r"\s*(?:[-*+]|\d+\.) ", line):
            start = start or number
            parts.append(line.strip())
            continue
        if parts:
            yield start, " ".join(parts)
            start, parts = None, []
        if is_prose:
            start, parts = number, [re.sub(r"^\s*(?:[-*+]|\d+\.) ", "", line).strip()]
    if parts:
        yield start, " ".join(parts)


def breaches(text):
    found = [match.group().strip(" .:") for pattern in (OPENING, PHRASE) for match in pattern.finditer(text)]
    return [f"'{words}'" for words in found]


def main(root):
    root, broken, checked = pathlib.Path(root), [], 0
    for path in source_tree.files(root):
        name = path.relative_to(root).as_posix()
        is_page = path.suffix == ".md"
        is_code = path.suffix in source_tree.CXX_SUFFIXES and name.startswith("src/")
        if not (is_page or is_code) or LATER.match(name):
            continue
        checked += 1
        text = path.read_text(encoding="utf-8")
        for line, sentence in page_lines(text) if is_page else comments(text):
            broken += [f"{name}:{line}: {breach}" for breach in breaches(sentence)]
        for line, words in enumerate(text.splitlines(), 1):
            broken += [f"{name}:{line}: '{match.group()}': docs/glossary.md has the term" for match in REPLACED.finditer(words)]
            if is_page and len(words) > WIDEST and not words.startswith(("|", "    ")):
                broken.append(f"{name}:{line}: {len(words)} columns")
    source_tree.report(broken, checked, "sentences")


if __name__ == "__main__":
    main(sys.argv[1])
