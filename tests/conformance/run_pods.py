#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Containers of one pod: two that share a network, and of pid, mount, ipc and user namespaces share each or have each to themselves.
Programs in both must reach each other, find the devices in /sys, and keep their connections when the agent is killed and the next
one is in the other container.

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
    """All private first: that is what most pods have."""
    return [harness.Shared("pod", private) for count in range(len(PRIVATE), -1, -1)
            for private in itertools.combinations(PRIVATE, count)]


def judge_programs(judge, what, server, client):
    for program in PROGRAMS:
        gid = ["-g", server.gid_index(server.ipv4)] if program[0].startswith("ibv_") else []
        result = harness.pair(server, client, program, server_options=gid, client_options=gid)
        judge.say(f"{what}: {program[0]}", None if result.good else result.report())


def judge_files(judge, what, container):
    """UCX and infiniband-diags look into /sys before they ask a library. The counters there go up with what programs send."""
    status, output = container.run("sh", "-c", "cat /sys/class/infiniband/*/ports/1/state && ibstatus")
    good = status == 0 and "ACTIVE" in output and "Infiniband device" in output
    judge.say(f"{what}: devices in /sys", None if good else f"exit {status}\n{output}")
    read = ("sh", "-c", "cat /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts")
    counted = harness.poll_until(lambda: container.run(*read)[1].strip() not in ("", "0"), 10, step=0.2)
    judge.say(f"{what}: counters in /sys", None if counted else f"{container.run(*read)}")


def judge_agents(judge, what, host):
    """One agent, and beside it no more than a mirror."""
    names = [containers.name_of(pid) for pid in host.agents()]
    judge.say(f"{what}: one agent", None if names.count("verbena-agent") == 1 else f"processes: {names}")


def agent_of(host):
    agents = containers.agents_of(host)
    return agents[0] if agents else None


def go_on(process):
    """It stands below one that has entered its namespaces, which stops itself when it sees that its child is stopped: at once, or
    when it comes to look."""
    def ended():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGCONT)
        return not process.running()
    harness.poll_until(ended, 60, step=0.1)


def judge_succession(judge, what, host, first, second):
    """The agent is killed while the program in its container is stopped, so that the next agent is in the other one: a connection by
    the wire goes on. What a program had ends with it, also where the new agent does not see its pid."""
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
    judge.say(f"{what}: slots come back", f"still lent: {left}" if left else None)


def judge_end(judge, what, host):
    """The agent ends, and what stands beside it."""
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
            judge_succession(judge, what, host, first, second)
            judge_programs(judge, f"{what}, after it", second, first)
            judge_end(judge, what, host)
            for container in (first, second):
                container.end()
    judge.exit()


if __name__ == "__main__":
    main()
