#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""include_order.py ROOT: no folder of src/ includes a folder on its own floor or above, and no headers of a folder include
each other in a cycle (docs/architecture.md). src/ has at most ten folders. Only base/format.h includes fmt."""

import pathlib
import re
import sys

import source_tree

# Folders and their floors. Paths without a slash are the folders directly below src/, at most ten.
FLOORS = {
    "base": 1,
    "base/paths": 2, "base/command_line": 2, "control/protocol": 2, "wire/roce": 2, "wire/ethernet": 2, "adapter/memory": 2,
    "adapter/queues": 3, "adapter/congestion": 3, "observe/capture": 3, "management/cm": 3,
    "observe/trace": 3.5,
    "adapter/transport": 4, "management/mad": 4,
    "adapter/net": 5, "control/model": 5,
    "adapter/shm": 5.5, "control/client": 5.5,
    "adapter/engine": 6,
    "adapter/xrc": 6.2,
    "adapter/process": 6.4, "libraries/libibverbs/provider": 6.4,
    "adapter/objects": 7,
    "libraries/libibverbs": 8, "libraries/librdmacm": 8, "libraries/libibumad": 8, "preload/sysfs": 8, "preload/malloc": 8,
    "preload/netlink": 8, "agent": 8,
    "libraries/rsockets": 9, "commands/agent": 9, "commands": 9,
    "commands/rdma_core": 10, "commands/perf": 11,
}
MAX_FOLDERS = 10  # directly below src/
# The agent must not depend on its clients; control/model/ has what both need.
FORBIDDEN = {("agent", "control/client")}
# The C ABI accesses devices through libraries/libibverbs/provider/ only, so that another provider can be added. One file lists
# the providers.
PROVIDERS = {"adapter/objects"}
ONLY_INTERFACE = {"libraries/libibverbs", "libraries/librdmacm", "libraries/rsockets"}
LIST_OF_PROVIDERS = "src/libraries/libibverbs/registered_providers.cc"
# fmt is compiled into one file. Other files that included fmt's headers would need symbols of libfmt, which is not linked.
FORMATTERS = {"src/base/format.h", "src/base/format.cc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def room_of(path):
    """The innermost folder of the table that contains a file below src/; None if there is none."""
    return next((folder.as_posix() for folder in pathlib.PurePosixPath(path).parents if folder.as_posix() in FLOORS), None)


def broken_rule(name, room, included):
    """Why the file `name` in the folder `room` may not include "included", or None."""
    other = room_of(included)
    if "/" not in included:
        return "is not written as \"folder/header.h\""
    if ".." in included.split("/"):
        return "goes through '..'"
    if other is None:
        return "is in no folder of the table of tests/house/include_order.py"
    if other == room:
        return None
    if (room, other) in FORBIDDEN:
        return f"is of {other}/, which {room}/ does not know"
    if FLOORS[other] >= FLOORS[room]:
        return f"is on floor {FLOORS[other]}, {room}/ on floor {FLOORS[room]}"
    if other in PROVIDERS and room in ONLY_INTERFACE and name != LIST_OF_PROVIDERS:
        return f"is a provider's own: only {LIST_OF_PROVIDERS} names providers"
    return None


def first_circle(includes):
    """The headers of one include cycle, with the first repeated at the end; or None. `includes`: header -> headers it
    includes."""
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
    outermost = set()
    headers = {}  # room -> header -> headers of the same room that it includes
    for path in source_tree.sources(root):
        parts = path.relative_to(root).parts
        if parts[0] != "src":
            continue
        checked += 1
        name = path.relative_to(root)
        outermost.add(parts[1])
        room = room_of("/".join(parts[1:]))
        if room is None:
            broken.append(f"{name}: its folder has no floor: give it one in tests/house/include_order.py")
            continue
        text = path.read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            bracket, included = match.groups()
            if included.startswith("fmt/") and name.as_posix() not in FORMATTERS:
                line = text.count("\n", 0, match.start(2)) + 1
                broken.append(f"{name}:{line}: {included}: include base/format.h instead")
            if bracket == "<" and room_of(included) is None:
                continue  # a library's header
            if path.suffix == ".h" and room_of(included) == room:
                headers.setdefault(room, {}).setdefault("/".join(parts[1:]), []).append(included)
            why = broken_rule(name.as_posix(), room, included)
            if why:
                line = text.count("\n", 0, match.start(2)) + 1
                broken.append(f"{name}:{line}: {included} {why}")
    if len(outermost) > MAX_FOLDERS:
        broken.append(f"src/: {len(outermost)} folders, at most {MAX_FOLDERS}: {' '.join(sorted(outermost))}")
    for room in sorted(headers):
        circle = first_circle(headers[room])
        if circle:
            broken.append(f"src/{circle[0]}: headers include each other in a circle: {' -> '.join(circle)}")
    source_tree.report(broken, checked, "include order")


if __name__ == "__main__":
    main(sys.argv[1])
