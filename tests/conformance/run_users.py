#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's programs as two users under root's agent, by wire, on one host and between two, each with its own agent of
root. Both users must have fully functional queue pairs, without sockets of UDP port 4791.

    run_users.py --build build/release
"""


import connections
import harness
import run_connections

USERS = (65534, 65533)  # users of the server and of the client
PROGRAMS = (
    ("ibv_rc_pingpong", "-c", "-n", "2000"),
    ("ibv_uc_pingpong", "-c", "-n", "200"),
    ("ibv_ud_pingpong", "-c", "-n", "200"),
    ("ibv_srq_pingpong", "-c", "-n", "2000"),
    ("ib_write_bw", "-F", "-n", "500", "-s", "65536"),
    ("ib_read_bw", "-F", "-n", "500", "-s", "65536"),
    ("ib_send_bw", "-F", "-n", "500", "-s", "4096"),
    ("ib_send_lat", "-F", "-n", "500", "-c", "UD"),
    ("ib_atomic_lat", "-F", "-n", "500"),
)
CONNECTING = (connections.rping(), connections.ucmatose("-c", "10"), connections.udaddy(), connections.mckey(),
              connections.perftest("ib_send_bw"))


def as_user(uid):
    """Command prefix with which root starts a command as this user."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"] if uid else []


class HostOfUser(harness.Host):
    """A host as seen by one user."""

    def __init__(self, host, uid):  # pylint: disable=super-init-not-called
        self.__dict__.update(host.__dict__)
        self.uid = uid

    def start(self, command, user=None, environment=None):
        return super().start(command, as_user(self.uid) if user is None else user, environment)


def gid_options(program, host):
    return ["-g", host.gid_index(host.ipv4)] if program[0].startswith("ibv_") else []


def judge_programs(judge, what, server, client, programs=PROGRAMS):
    for program in programs:
        result = harness.pair(server, client, program, server_options=gid_options(program, server),
                              client_options=gid_options(program, client))
        judge.say(f"{what}: {' '.join(program)}", None if result.good else result.report())


def judge_connections(judge, what, hosts, server, client):
    for case in CONNECTING:
        for family in case.families:
            complaint, result = run_connections.run_once(hosts, case, server, client, family)
            judge.say(f"{what}: {case.name}, {family}", complaint and f"{complaint}\n{result.report()}")


def judge_status(judge, what, server, client):
    """While two programs exchange messages, the status must show that the agent forwards the packets of both."""
    serving, calling = harness.start_pair(server, client, "-D", "60")

    def shown():
        return {(process["uid"], process["handed_over"], pair["route"])
                for process in server.status(user=[])["processes"] for pair in process["queue_pairs"]}
    wanted = {(uid, True, "wire") for uid in USERS}
    seen = harness.poll_until(lambda: shown() == wanted, 20, step=0.1)
    found = shown()
    for process in (serving, calling):
        process.kill()
    judge.say(f"{what}: the agent forwards the packets of both",
              None if seen else f"status says {found}\n{serving.output}\n{calling.output}")


def main():
    options = harness.begin(__doc__, "ip", "setpriv", "stdbuf", "ib_write_bw", "ibv_rc_pingpong", "rping")

    judge = harness.Judge()
    with harness.Hosts(options.build, route="wire") as hosts:
        first, second = hosts.two()
        for host in (first, second):
            host.start_agent()
        for what, other in (("one host", first), ("two hosts", second)):
            server, client = HostOfUser(first, USERS[0]), HostOfUser(other, USERS[1])
            judge_programs(judge, what, server, client)
            judge_connections(judge, what, hosts, server, client)
            if other is first:
                judge_status(judge, what, server, client)
    judge.exit()


if __name__ == "__main__":
    main()
