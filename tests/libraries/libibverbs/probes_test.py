#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the static probes (USDT) of the libraries: their names, the number of their arguments, and that an unused probe is a
single nop.

    probes_test.py LIBRARIES
"""

import pathlib
import re
import subprocess
import sys

SKIPPED = 77
NOTE = re.compile(r"Provider: verbena\n\s+Name: (\w+)\n\s+Location: 0x([0-9a-f]+), .*\n\s+Arguments: (.*)")
# docs/watching.md describes the arguments.
WANTED = {
    "libibverbs.so.1": {"post_send": 4, "post_recv": 2, "completion": 4, "retransmission": 3},
    "librdmacm.so.1": {"cm_event": 3},
}


def output(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


def code_at(library, address):
    """The instruction at this address."""
    text = output("objdump", "-d", "--no-show-raw-insn", f"--start-address={address}", f"--stop-address={address + 1}", library)
    return text.strip().splitlines()[-1].split("\t")[-1].strip()


def check(library, wanted):
    notes = NOTE.findall(output("readelf", "-n", library))
    wrong = []
    if {name for name, _, _ in notes} != set(wanted):
        wrong.append(f"{library.name} has {sorted({name for name, _, _ in notes})}, not {sorted(wanted)}")
    for name, location, arguments in notes:
        count = len(re.findall(r"-?\d+@", arguments))
        if count != wanted.get(name):
            wrong.append(f"{library.name}: {name} has arguments {arguments}, not {wanted.get(name)} of them")
        instruction = code_at(library, int(location, 16))
        if instruction != "nop":
            wrong.append(f"{library.name}: {name} at 0x{location} is '{instruction}', not a nop")
    return wrong


def main():
    folder = pathlib.Path(sys.argv[1])
    if not any(".note.stapsdt" in output("readelf", "-S", "-W", folder / library) for library in WANTED):
        print("SKIPPED: built without the headers of systemtap-sdt-dev")
        sys.exit(SKIPPED)
    wrong = [line for library, wanted in WANTED.items() for line in check(folder / library, wanted)]
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
