#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stopped agent (SIGSTOP): programs wait for it, as for the kernel, and say so; commands time out and say why. When the
agent continues, or dies and another replaces it, the programs continue. Queue pairs whose packets the agent forwards keep
their connections meanwhile, because the standby forwards instead.

    run_stopped_agent.py --build build/release
"""

import os
import signal
import time

import harness
import run_stopped_peer
import run_users

SECONDS = 20
STOPPED = 3


def check_commands(judge, host, silence):
    for arguments in (["status"], ["top", "--batch"], ["trace"], ["link", "show"], ["metrics"], ["agent"]):
        status, output = host.command(*arguments, user=[])
        judge.say(f"verbena {' '.join(arguments)}", None if status == 1 and silence in output else f"status {status}\n{output}")


def starts_to_wait(judge, host, silence, what):
    program = host.start([host.hosts.build.program, "run", "ibv_devinfo"], environment={"VERBENA_LOG": "error"})
    waits = harness.poll_until(lambda: f"{silence}: " in program.output and "; waiting for it" in program.output, SECONDS)
    judge.say(f"{what}: ibv_devinfo says that it waits", None if waits and program.running() else program.output)
    return program


def check_end(judge, program, what):
    status, output = harness.Host.finish(program, SECONDS)
    good = status == 0 and "hca_id" in output
    judge.say(f"{what}: ibv_devinfo finds its device", None if good else f"status {status}\n{output}")


def check_forwarded_pairs(judge, first, second):
    """Programs of two users on two hosts, while the agent of the first host is stopped."""
    for host in (first, second):
        host.start_agent()
    one, other = run_users.HostOfUser(first, run_users.USERS[0]), run_users.HostOfUser(second, run_users.USERS[1])
    words = run_stopped_peer.PINGPONG + ["-g", str(first.gid_index(first.ipv4, "rxe_eth0"))]
    server = one.verbena("run", *words)
    harness.poll_until(lambda: server.listens(18515), SECONDS)
    client = other.verbena("run", *words, first.ipv4)

    def sent():
        found = [pair for process in second.status(user=[])["processes"] for pair in process["queue_pairs"]]
        return found[0]["counters"]["sent_packets"] if found else 0
    begun = harness.poll_until(lambda: sent() > run_stopped_peer.SENT_BEFORE, SECONDS)
    kept = harness.poll_until(first.has_standby, SECONDS)
    agent = first.status(user=[])["agent"]["pid"]
    os.kill(agent, signal.SIGSTOP)
    time.sleep(STOPPED)
    before = sent()
    goes_on = harness.poll_until(lambda: sent() > before + run_stopped_peer.SENT_BEFORE, SECONDS)
    os.kill(agent, signal.SIGCONT)
    before = sent()
    after = harness.poll_until(lambda: sent() > before + run_stopped_peer.SENT_BEFORE, SECONDS)
    for process in (server, client):
        process.kill()
    judge.say(f"pairs of two users, the agent stopped for {STOPPED} s",
              None if begun and kept and goes_on and after
              else f"{begun} {kept} {goes_on} {after}\n{server.output}{client.output}")


def main():
    options = harness.begin(__doc__, "ip", "setpriv", "ibv_devinfo", "ibv_rc_pingpong")
    judge = harness.Judge()

    with harness.Hosts(options.build, route="wire") as hosts:
        check_forwarded_pairs(judge, *hosts.two())
    with harness.Hosts(options.build) as hosts:
        host = hosts.one()
        host.start_agent()
        agent, = host.agents()
        silence = f"agent (pid {agent}) does not respond; it is stopped"
        os.kill(agent, signal.SIGSTOP)
        program = starts_to_wait(judge, host, silence, "stopped")
        check_commands(judge, host, silence)
        judge.say("stopped: ibv_devinfo still waits", None if program.running() else program.output)
        os.kill(agent, signal.SIGCONT)
        check_end(judge, program, "continued")

        os.kill(agent, signal.SIGSTOP)
        program = starts_to_wait(judge, host, silence, "stopped again")
        os.kill(agent, signal.SIGKILL)
        check_end(judge, program, "killed")
    judge.exit()


if __name__ == "__main__":
    main()
