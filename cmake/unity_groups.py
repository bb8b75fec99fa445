#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unity_groups.py SIZE FILE...: splits C++ files into groups of at most SIZE files, each to be compiled as one unit.

A file may declare local names at namespace scope (static, constant, or in an unnamed namespace) that another file declares or uses
too. Such files go into different groups, so files need not agree about names. Prints the number of the group of each file, in the
given order. Names are found without a compiler: words at namespace scope before one of ( { = ; [ : or after class, struct, enum or
union.
"""

import pathlib
import re
import sys

NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
DEFINITION = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
TOKEN = re.compile(r"\w+|::|\S")
# Names after a dot, an arrow or :: cannot be hidden. Lower-case names count only if they are called or constructed: others are local
# variables.
USE = re.compile(r"(?<![\w.>:])(?:[A-Z]\w*|k[A-Z]\w*|[a-z_]\w*(?=\s*[(<{]))")
TYPES = {"class", "struct", "enum", "union"}
# First words of declarations, outside unnamed namespaces, whose names another file may declare too.
OWN = {"static", "constexpr", "constinit", "const", "using", "struct", "class", "enum", "union"}
# Macros that join their arguments to one name.
TEST_MACROS = {"TEST", "TEST_F", "TEST_P", "TYPED_TEST", "TYPED_TEST_P"}


def declared(text):
    """The names that are local to this file: in unnamed namespaces, static names, constants, types, aliases, macros. Maps an alias to
    its declaration, since identical aliases may be repeated; maps other names to None."""
    text = without_noise(text)
    names = dict.fromkeys(DEFINITION.findall(text))
    tokens = TOKEN.findall(DIRECTIVE.sub(" ", text))
    position, opened = 0, []  # opened: for each enclosing namespace, whether it is unnamed
    statement = []            # tokens of the current declaration at namespace scope
    while position < len(tokens):
        token = tokens[position]
        if token == "{":
            is_namespace = "namespace" in statement[:2] or statement[:2] == ["extern", "0"]
            if not is_namespace and "(" not in statement:
                names.update(own_names(statement + ["{"], opened))
            elif not is_namespace:
                names.update(own_names(statement, opened))
            if is_namespace:
                opened.append(statement[-1] == "namespace")
                statement = []
                position += 1
                continue
            position = behind(tokens, position, "{", "}")
            # The body of a function ends its declaration; that of a class or initializer is followed by a semicolon.
            if position < len(tokens) and tokens[position] != ";" and "=" not in statement:
                statement = []
            else:
                statement.append("0")
            continue
        if token == "}":
            opened and opened.pop()
            statement = []
        elif token == ";":
            names.update(own_names(statement + [";"], opened))
            statement = []
        elif token == "(":
            after = behind(tokens, position, "(", ")")
            if statement and statement[-1] in TEST_MACROS:
                words = [word for word in tokens[position:after] if re.fullmatch(r"\w+", word)]
                names["_".join(words)] = None
            statement += ["(", ")"]
            position = after
            continue
        else:
            statement.append(token)
        position += 1
    return names


def used(text):
    """The types, constants and functions that a file uses unqualified."""
    return set(USE.findall(without_noise(text)))


def without_noise(text):
    return NOISE.sub(lambda found: " " if found.group().startswith("/") else " 0 ", text)


def behind(tokens, position, opening, closing):
    """The position after the bracket that closes the one at `position`."""
    depth = 0
    while position < len(tokens):
        depth += (tokens[position] == opening) - (tokens[position] == closing)
        position += 1
        if depth == 0:
            break
    return position


def own_names(statement, opened):
    return names_in(statement) if any(opened) or statement[0] in OWN else {}


def names_in(statement):
    if not statement or statement[0] in ("using", "namespace", "friend", "static_assert"):
        # An alias declares a name; a using-declaration only imports one.
        return {statement[1]: " ".join(statement)} if statement[:1] == ["using"] and "=" in statement else {}
    found = {}
    for index, word in enumerate(statement):
        if not re.fullmatch(r"[A-Za-z_]\w*", word) or word in TYPES or word in TEST_MACROS or word == "final":
            continue
        before = statement[index - 1] if index else ""
        after = statement[index + 1] if index + 1 < len(statement) else ""
        if before in TYPES and after != "::":
            found[word] = None
            if after == ":":  # bases
                break
        elif after in ("(", "=", "[", ";", "{") and before not in ("::", "=", ".", "->") and index:
            found[word] = None
        if word == "=" or after == "=":
            break
    return found


def main(size, paths):
    groups = []  # names declared, names used, number of files
    for path in paths:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        names, uses = declared(text), used(text)
        for number, group in enumerate(groups):
            if group[2] < size and go_together(names, uses, *group[:2]):
                break
        else:
            number = len(groups)
            groups.append([{}, set(), 0])
        groups[number][0].update(names)
        groups[number][1] |= uses
        groups[number][2] += 1
        print(number)


def go_together(names, uses, other_names, other_uses):
    return not any(names.get(name, 0) != other_names.get(name, 0) or names[name] is None
                   for name in names.keys() & (other_names.keys() | other_uses) | other_names.keys() & uses)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
