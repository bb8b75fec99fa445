#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""include_order.py ROOT: no room of src/ includes a room on its own floor or above, and the headers of a room do not
include each other in a circle (docs/architecture.md). Only base/format.h includes fmt."""

import re
import sys

import source_tree

FLOORS = {
    "base": 1,
    "paths": 2, "protocol": 2, "roce": 2, "memory": 2, "ethernet": 2,
    "command_line": 2.5,
    "queues": 3, "local": 3, "capture": 3, "congestion": 3, "cm": 3,
    "trace": 3.5,
    "transport": 4, "fabric": 4,
    "net": 5, "agent_client": 5,
    "engine": 6,
    "provider": 6.5,
    "adapter": 7,
    "verbs": 8, "rdmacm": 8, "umad": 8, "facade": 8, "backing": 8, "agent": 8, "rdma_netlink": 8,
    "rsockets": 9, "tools": 9,
    "programs": 10,
}
# The C ABI knows devices through provider/ only, so that another provider is an addition. One file lists which
# providers there are.
PROVIDERS = {"adapter"}
ONLY_INTERFACE = {"verbs", "rdmacm", "rsockets"}
LIST_OF_PROVIDERS = "src/verbs/registered_providers.cc"
# fmt is compiled into one file; a file that includes fmt's headers would need symbols of a libfmt that nobody links.
FORMATTERS = {"src/base/format.h", "src/base/format.cc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def broken_rule(name, room, included):
    """Why the file `name` of `room` may not include "included", or None."""
    other = included.split("/")[0]
    if "/" not in included:
        return "is not written as \"room/header.h\""
    if ".." in included.split("/"):
        return "goes through '..'"
    if other not in FLOORS:
        return f"names no room: '{other}' is not in the table of tests/house/include_order.py"
    if other == room:
        return None
    if FLOORS[other] >= FLOORS[room]:
        return f"is on floor {FLOORS[other]}, {room}/ on floor {FLOORS[room]}"
    if other in PROVIDERS and room in ONLY_INTERFACE and name != LIST_OF_PROVIDERS:
        return f"is a provider's own: only {LIST_OF_PROVIDERS} names providers"
    return None


def first_circle(includes):
    """The headers of one circle, first and last the same; or None. `includes`: header -> those it includes."""
    done, path = set(), []

    def visit(header):
        if header in path:
            return path[path.index(header):] + [header]
        if header in done:
            return None
        path.append(header)
        for other in includes.get(header, ()):
            circle = visit(other)
            if circle:
                return circle
        path.pop()
        done.add(header)
        return None

    for header in sorted(includes):
        circle = visit(header)
        if circle:
            return circle
    return None


def main(root):
    broken, checked = [], 0
    headers = {}  # room -> header -> what it includes of its own room
    for path in source_tree.sources(root):
        parts = path.relative_to(root).parts
        if parts[0] != "src":
            continue
        checked += 1
        name = path.relative_to(root)
        room = parts[1]
        if room not in FLOORS:
            broken.append(f"{name}: '{room}' is no room: give it a floor in tests/house/include_order.py")
            continue
        text = path.read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            bracket, included = match.groups()
            if included.startswith("fmt/") and name.as_posix() not in FORMATTERS:
                line = text.count("\n", 0, match.start(2)) + 1
                broken.append(f"{name}:{line}: {included}: include base/format.h instead")
            if bracket == "<" and ("/" not in included or included.split("/")[0] not in FLOORS):
                continue  # a library's header
            if path.suffix == ".h" and included.split("/")[0] == room:
                headers.setdefault(room, {}).setdefault("/".join(parts[1:]), []).append(included)
            why = broken_rule(name.as_posix(), room, included)
            if why:
                line = text.count("\n", 0, match.start(2)) + 1
                broken.append(f"{name}:{line}: {included} {why}")
    for room in sorted(headers):
        circle = first_circle(headers[room])
        if circle:
            broken.append(f"src/{circle[0]}: headers include each other in a circle: {' -> '.join(circle)}")
    source_tree.report(broken, checked, "include order")


if __name__ == "__main__":
    main(sys.argv[1])
