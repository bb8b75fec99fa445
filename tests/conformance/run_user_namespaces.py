#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs in a user namespace (`unshare -Ur`) together with the same user's programs outside it, on one host: under root's
agent, and under the user's own agent that either of the two has started. Both must use one agent, and must be able to connect
to each other.

    run_user_namespaces.py --build build/release
"""

import pathlib
import shutil

import harness
from run_users import HostOfUser, as_user, judge_programs

USER = 65533
PROGRAMS = (
    ("ibv_rc_pingpong", "-c", "-n", "1000"),
    ("ib_read_bw", "-F", "-n", "200", "-s", "65536"),
)


class InUserNamespace(HostOfUser):
    """A host as seen by a user in a user namespace, in which the user appears as root."""

    def start(self, command, user=None, environment=None):
        inside = as_user(self.uid) + ["unshare", "-Ur"]
        return harness.Host.start(self, command, inside if user is None else user, environment)


def judge_agents(judge, what, host, count=1):
    agents = host.agents()
    judge.say(f"{what}: {count} agent", None if len(agents) == count else f"agents: {agents}")


def judge_doctor(judge, what, host):
    """The doctor must find the agent's directory in order, and must not suggest removing it."""
    _, output = host.command("doctor")
    judge.say(f"{what}: doctor", output if "rm -r" in output or "/run/verbena" in output else None)


def main():
    options = harness.begin(__doc__, "ip", "setpriv", "unshare", "ib_read_bw", "ibv_rc_pingpong")

    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        host = hosts.two()[0]
        outside, inside = HostOfUser(host, USER), InUserNamespace(host, USER)
        if harness.Host.start(host, ["true"], as_user(USER) + ["unshare", "-Ur"]).wait(10) != 0:
            harness.skip("no user namespaces here")

        host.start_agent()
        judge_programs(judge, "root's agent, server outside", outside, inside, PROGRAMS)
        judge_programs(judge, "root's agent, server inside", inside, outside, PROGRAMS)
        judge_agents(judge, "root's agent", host)
        judge_doctor(judge, "root's agent", inside)
        host.end_agents()

        for what, first, second in (("agent from outside", outside, inside), ("agent from inside", inside, outside)):
            judge_programs(judge, f"{what}, server there", first, second, PROGRAMS)
            judge_agents(judge, what, host)
            judge_doctor(judge, what, inside)
            host.end_agents()
    shutil.rmtree(pathlib.Path(f"/tmp/verbena-{USER}"), ignore_errors=True)
    judge.exit()


if __name__ == "__main__":
    main()
