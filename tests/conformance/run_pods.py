#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Containers of one pod: two that share the network, and share or separate each of their pid, mount, ipc and user namespaces.
Programs in both must reach each other and find the devices in /sys. Their connections must survive when the agent is killed
and the next one starts in the other container.

    run_pods.py --build build/release
"""

import contextlib
import itertools
import os
import signal

import containers
import harness
from containers import Container

PRIVATE = ("pid", "mount", "ipc", "user")
PROGRAMS = (
    ("ibv_rc_pingpong", "-c", "-n", "500"),
    ("ib_read_bw", "-F", "-n", "100", "-s", "65536"),
)


def combinations():
    """All combinations of separate namespaces, beginning with all of them, as in most pods."""
    return [harness.Shared("pod", private) for count in range(len(PRIVATE), -1, -1)
            for private in itertools.combinations(PRIVATE, count)]


def judge_programs(judge, what, server, client):
    for program in PROGRAMS:
        gid = ["-g", server.gid_index(server.ipv4)] if program[0].startswith("ibv_") else []
        result = harness.pair(server, client, program, server_options=gid, client_options=gid)
        judge.say(f"{what}: {program[0]}", None if result.good else result.report())


def judge_files(judge, what, container):
    """UCX and infiniband-diags read /sys before they ask a library. The counters in it must grow with traffic."""
    status, output = container.run("sh", "-c", "cat /sys/class/infiniband/*/ports/1/state && ibstatus")
    good = status == 0 and "ACTIVE" in output and "Infiniband device" in output
    judge.say(f"{what}: devices in /sys", None if good else f"exit {status}\n{output}")
    read = ("sh", "-c", "cat /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts")
    counted = harness.poll_until(lambda: container.run(*read)[1].strip() not in ("", "0"), 10, step=0.2)
    judge.say(f"{what}: counters in /sys", None if counted else f"{container.run(*read)}")


def judge_agents(judge, what, host):
    """There must be one agent; a mirror may run beside it."""
    names = [harness.name_of(pid) for pid in host.agents()]
    judge.say(f"{what}: one agent", None if names.count("verbena-agent") == 1 else f"processes: {names}")


def agent_of(host):
    agents = containers.agents_of(host)
    return agents[0] if agents else None


def go_on(process):
    """Continues a stopped program. Its parent, which has entered the namespaces, stops itself when it notices that its child
    is stopped, which may be later; so this repeats SIGCONT until the program ends."""
    def ended():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGCONT)
        return not process.running()
    harness.poll_until(ended, 60, step=0.1)


def judge_takeover(judge, what, host, first, second):
    """Kills the agent while a program in its container is stopped, so the next agent runs in the other container. A connection
    by wire must survive. A program's slots must be freed when it ends, even if the new agent cannot see its pid."""
    wire = {"VERBENA_LOCAL": "off"}
    serving, calling = harness.start_pair(first, second, "-D", "4", "-s", "4096", server_environment=wire,
                                          client_environment=wire)

    def is_busy():
        return any(pair["state"] == "RTS" for process in second.status()["processes"] for pair in process["queue_pairs"])
    busy, succeeded = harness.poll_until(is_busy, 20, step=0.1), False
    killed = agent_of(host)
    if busy and killed:
        os.killpg(serving.pid, signal.SIGSTOP)
        os.kill(killed, signal.SIGKILL)
        succeeded = harness.poll_until(lambda: agent_of(host) not in (None, killed), 10)
        go_on(serving)
    statuses = [process.wait(60) for process in (calling, serving)]
    wrong = None if succeeded and statuses == [0, 0] else f"busy {busy}, agent {killed}, next {succeeded}, exit {statuses}\n{serving.output}\n{calling.output}"
    judge.say(f"{what}: a connection outlives the agent", wrong)
    left = None

    def is_empty():
        nonlocal left
        left = second.status()["processes"]
        return not left
    harness.poll_until(is_empty, 10, step=0.1)
    judge.say(f"{what}: slots come back", f"still leased: {left}" if left else None)


def judge_end(judge, what, host):
    """The agent must end, and so must its mirror."""
    os.kill(agent_of(host), signal.SIGTERM)
    ended = harness.poll_until(lambda: not host.agents(), 10)
    judge.say(f"{what}: nothing is left", None if ended else f"processes: {host.agents()}")


def main():
    parser = harness.parser(__doc__)
    harness.add_share_options(parser)
    options = harness.begin(parser, "ip", "setpriv", "unshare", "nsenter", "ib_write_bw", "ibv_rc_pingpong", "ibstatus")
    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        host = hosts.two()[0]
        for private in (each.case for each in harness.share_of(combinations(), options.share)):
            what = f"private {', '.join(private) or 'nothing'}"
            try:
                first, second = Container(host, private), Container(host, private)
            except RuntimeError as error:
                judge.say(what, str(error))
                continue
            judge_programs(judge, what, first, second)
            judge_files(judge, f"{what}, first", first)
            judge_files(judge, f"{what}, second", second)
            judge_agents(judge, what, host)
            judge_takeover(judge, what, host, first, second)
            judge_programs(judge, f"{what}, after it", second, first)
            judge_end(judge, what, host)
            for container in (first, second):
                container.end()
    judge.exit()


if __name__ == "__main__":
    main()
