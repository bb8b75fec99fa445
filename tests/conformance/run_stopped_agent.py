#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stopped agent: programs wait for it, as they would for the kernel, and say so; the commands give up and say why. When it
goes on, or dies and another takes its place, the programs go on, too.

    run_stopped_agent.py --build build/release
"""

import os
import signal

import harness

SECONDS = 20


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


def main():
    options = harness.begin(__doc__, "ip", "ibv_devinfo")
    judge = harness.Judge()

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
