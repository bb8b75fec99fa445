#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds the functions of libibverbs.so.1 that run for each message, and prints a new src/libraries/libibverbs/hot_functions.txt.

    hot_functions.py --build build/release > src/libraries/libibverbs/hot_functions.txt

Needs root. Runs perftest's programs under callgrind (package valgrind), each end in turn, and selects the functions that are called
for at least OFTEN of the messages.
"""

import argparse
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "conformance"))
import harness  # noqa: E402

SECONDS = 120
LIST = 16  # requests per batch in runs that post many
OFTEN = 0.4  # minimum calls per round; functions that timers call, though frequent under the slow callgrind, stay below

# Each group: title, route, and programs. Each program: option of `verbena run`, command, number of rounds.
ALONE = 3000
GROUPS = [
    ("SENDs by memory that go alone", "local", [
        ("", ["ib_send_lat", "-s", "8", "-n", str(ALONE)], ALONE),
        ("", ["ib_send_lat", "-s", "4096", "-n", str(ALONE)], ALONE),
    ]),
    ("One-sided operations on the peer's memory", "local", [
        ("--shared-memory", ["ib_write_lat", "-s", "8", "-n", str(ALONE)], ALONE),
        ("--shared-memory", ["ib_atomic_lat", "-n", str(ALONE)], ALONE),
        ("", ["ib_write_lat", "-s", "8", "-n", str(ALONE)], ALONE),
        ("", ["ib_read_lat", "-s", "8", "-n", str(ALONE)], ALONE),
    ]),
    ("Many messages by memory", "local", [
        ("", ["ib_send_bw", "-s", "8", "-n", "16000"], 16000 // LIST),
        ("", ["ib_send_bw", "-s", "8", "-l", str(LIST), "-n", "16000"], 16000 // LIST),
        ("", ["ib_write_bw", "-s", "65536", "-n", "3000"], 3000),
        ("", ["ib_send_bw", "-s", "1048576", "-n", "300"], 300),
        ("", ["ib_read_bw", "-s", "65536", "-n", "3000"], 3000),
    ]),
    ("Other services by memory, and atomics as messages", "local", [
        ("", ["ib_send_lat", "-c", "UD", "-s", "8", "-n", str(ALONE)], ALONE),
        ("", ["ib_send_lat", "-c", "UC", "-s", "8", "-n", str(ALONE)], ALONE),
        ("", ["ib_atomic_lat", "-n", str(ALONE)], ALONE),
    ]),
    ("The wire", "wire", [
        ("", ["ib_send_lat", "-s", "8", "-n", "2000"], 2000),
        ("", ["ib_write_lat", "-s", "8", "-n", "2000"], 2000),
        ("", ["ib_write_bw", "-s", "65536", "-n", "1000"], 1000),
        ("", ["ib_send_bw", "-s", "65536", "-n", "1000"], 1000),
        ("", ["ib_read_bw", "-s", "65536", "-n", "1000"], 1000),
    ]),
]

HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# The functions that each message goes through. The linker lays them beside each other (cmake/VerbenaHotFunctions.cmake). One in each
# line: without what it takes, and with <> for whatever a template is made of. bench/verbs/hot_functions.py prints this file.
"""


def qualified_name(symbol):
    """The name (verbena::folder::Class::function) of a symbol that callgrind prints; None for others' symbols, operators and
    lambdas."""
    name = re.sub(r"'\d+$", "", symbol).replace("(anonymous namespace)", "ANONYMOUS")
    depth = 0
    plain = ""
    for letter in name:
        if letter in "<(":
            if depth == 0 and letter == "<":
                plain += "<>"
            depth += 1
        elif letter in ">)":
            depth -= 1
        elif depth == 0:
            plain += letter
    if "operator" in plain or "lambda" in plain:
        return None
    # The symbol of a function template begins with the result type.
    found = [word for word in plain.split(" ") if re.match("verbena(::|_)", word)]
    return found[-1].replace("ANONYMOUS", "(anonymous namespace)") if found else None


def calls_in(profile):
    """The number of calls of each function."""
    calls = {}
    names = {}
    callee = None
    for line in profile.read_text(encoding="utf-8", errors="replace").splitlines():
        if found := re.match(r"(c?fn)=\((\d+)\)(?: (.*))?$", line):
            kind, number, name = found.groups()
            if name:
                names[number] = name
            if kind == "cfn":
                callee = names[number]
        elif found := re.match(r"calls=(\d+)", line):
            name = qualified_name(callee)
            if name:
                calls[name] = calls.get(name, 0) + int(found.group(1))
    return calls


def called_often(here, option, command, rounds, folder):
    """The functions that the server or the client calls at least OFTEN times per round."""
    found = set()
    for end in ("server", "client"):
        profile = folder / "profile"
        watched = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}", *command]
        run = ["run", *([option] if option else [])]
        port = here.hosts.port()
        options = ["-x", "1", "-F", "-p", port]
        server = here.verbena(*run, *(watched if end == "server" else command), *options)
        harness.poll_until(lambda: server.listens(port) or not server.running(), SECONDS)
        client = here.verbena(*run, *(watched if end == "client" else command), *options, "127.0.0.1")
        statuses = [process.wait(SECONDS) for process in (client, server)]
        for process in (client, server):
            process.kill()
        if any(statuses):
            raise RuntimeError(client.output + server.output)
        found |= {name for name, calls in calls_in(profile).items() if calls >= OFTEN * rounds}
        profile.unlink()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    harness.require_root()
    harness.require_programs("valgrind", "ib_send_lat")
    known = set()
    text = HEAD
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder).chmod(0o777)  # the programs run as another user
        for title, route, programs in GROUPS:
            found = set()
            with harness.Hosts(arguments.build, route) as hosts:
                here = hosts.here()
                for option, command, rounds in programs:
                    print(title, *command, file=sys.stderr)
                    found |= called_often(here, option, command, rounds, pathlib.Path(folder))
            text += f"\n# {title}\n" + "".join(f"{name}\n" for name in sorted(found - known))
            known |= found
    print(text, end="")


if __name__ == "__main__":
    main()
