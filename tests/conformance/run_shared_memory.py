#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's perftest under `verbena run --shared-memory`. It must work as without, and each end must have mapped the
other's buffers, according to /proc.

    run_shared_memory.py --build build/release
"""

import pathlib
import re

import harness

BLOCKS = re.compile(r" (\d+) +/memfd:verbena \(deleted\)$", re.MULTILINE)
SECONDS = 60


def shared_memory(host, *program):
    return host.verbena("run", "--shared-memory", *program)


def ordinary_memory(host, *program):
    return host.verbena("run", *program)


def files_of_blocks(process):
    """The inodes of shared heap files that a process has mapped."""
    try:
        return set(BLOCKS.findall(pathlib.Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")))
    except OSError:
        return set()


def own_file(process):
    """The inode of the file with the process's own heap, found among its descriptors."""
    try:
        for link in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
            if str(link.readlink()) == "/memfd:verbena (deleted)":
                return {str(link.stat().st_ino)}
    except OSError:
        pass
    return set()


def mapped_by_each_other(host, command, start_server, start_client, wanted):
    """Runs a pair until it exchanges messages and the mappings are as wanted: for (server, client), whether each has mapped
    the other's heap. Returns the last state, and the output of both."""
    port = host.hosts.port()
    words = [*command, "-F", "-D", SECONDS, "-p", port]
    serving = start_server(host, *words)
    harness.poll_until(lambda: serving.listens(port) or not serving.running(), 20)
    calling = start_client(host, *words, host.ipv4)

    def mapped():
        return tuple(bool(files_of_blocks(process) & own_file(other))
                     for process, other in ((serving, calling), (calling, serving)))

    def is_under_way():
        pairs = [pair for process in host.status()["processes"] if process["pid"] in (serving.pid, calling.pid)
                 for pair in process["queue_pairs"]]
        return sum(pair["counters"]["sent_packets"] for pair in pairs) > 100

    harness.poll_until(lambda: not calling.running() or is_under_way(), 20, step=0.1)
    harness.poll_until(lambda: not calling.running() or mapped() == wanted, 10)
    found = mapped()
    outputs = [process.output for process in (serving, calling)]
    for process in (serving, calling):
        process.kill()
    return found, outputs


def main():
    options = harness.begin(__doc__, "ip", "setpriv", "ib_write_bw")

    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        host = hosts.one()
        for operation in ("write", "read", "atomic", "send"):
            for kind in ("lat", "bw"):
                for sizes in (["-n", "100", "-a"], ["-n", "1000"]) if operation != "atomic" else (["-n", "1000"],):
                    command = [f"ib_{operation}_{kind}", "-F", *sizes]
                    result = harness.pair(host, host, command, wrap=shared_memory, seconds=2 * SECONDS)
                    judge.say(" ".join(command), None if result.good else result.report())

        for command, start_server, start_client, wanted in (
                (["ib_write_lat"], shared_memory, shared_memory, (True, True)),
                (["ib_write_lat", "-s", 65536], shared_memory, shared_memory, (True, True)),
                (["ib_read_lat"], shared_memory, shared_memory, (False, True)),
                (["ib_atomic_lat"], shared_memory, ordinary_memory, (False, True)),
                (["ib_write_lat"], ordinary_memory, ordinary_memory, (False, False))):
            found, outputs = mapped_by_each_other(host, command, start_server, start_client, wanted)
            what = " ".join(map(str, command)) + f", {start_server.__name__} and {start_client.__name__}"
            judge.say(what, None if found == wanted else f"mapped by server and client: {found}, not {wanted}\n" + "\n".join(outputs))
    judge.exit()


if __name__ == "__main__":
    main()
