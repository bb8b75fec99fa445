#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two users and root share root's agents. Each in turn runs Debian's programs, on one host through shared memory and by wire,
and between two hosts. Meanwhile the other two attack the agent, its port and other users.

    hostile_users_test.py --build build/release

The attacker is tests/chaos/hostile_user.cc. As root it skips what root is entitled to: taking all resources, and the port.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
import connections  # noqa: E402
import harness  # noqa: E402
import run_connections  # noqa: E402
from run_users import HostOfUser, as_user, gid_options  # noqa: E402

ROOT, FIRST, SECOND = 0, 65534, 65533
DEEDS = {ROOT: 4, FIRST: 8, SECOND: 8}  # minimum number of attack kinds that must have been carried out, of four (root) or ten

PROGRAMS = (
    ("ibv_rc_pingpong", "-c", "-n", "1000"),
    ("ibv_ud_pingpong", "-c", "-n", "100"),
    ("ibv_srq_pingpong", "-c", "-n", "1000"),
    ("ib_write_bw", "-F", "-n", "300", "-s", "65536"),
    ("ib_read_lat", "-F", "-n", "300"),
    ("ib_atomic_lat", "-F", "-n", "300"),
)
CONNECTING = (connections.rping(), connections.perftest("ib_send_bw"))


def start_hostile(hosts, program, uid):
    words = [program, *(["moderate"] if uid == ROOT else [])]
    return [host.start(words, user=as_user(uid)) for host in hosts]


def judge_recovery(judge, victim, hosts):
    """Checks that the share of the attackers' resources is soon free again after they were killed."""
    for host in hosts:
        free = harness.poll_until(lambda h=host: h.run("ibv_devinfo")[0] == 0, 20, 0.05)
        judge.say(f"user {victim} has its own share again", None if free else "not within 20 s")


def judge_programs(judge, what, server, client, environment):
    for program in PROGRAMS:
        result = harness.pair(server, client, program, server_options=gid_options(program, server),
                              client_options=gid_options(program, client), environment=environment, seconds=120)
        judge.say(f"{what}: {' '.join(program)}", None if result.good else result.report())


def judge_connections(judge, what, hosts, server, client):
    for case in CONNECTING:
        complaint, result = run_connections.run_once(hosts, case, server, client, case.families[0])
        judge.say(f"{what}: {case.name}", complaint and f"{complaint}\n{result.report()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, such as build/release")
    options = parser.parse_args()
    harness.require_root()
    harness.require_programs("ip", "setpriv", "ib_write_bw", "ibv_rc_pingpong")
    program = pathlib.Path(options.build).resolve() / "tests" / "hostile_user"

    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        both = hosts.two()
        for host in both:
            host.start_agent()
        for victim in (FIRST, SECOND, ROOT):
            others = [uid for uid in (ROOT, FIRST, SECOND) if uid != victim]
            hostile = {uid: start_hostile(both, program, uid) for uid in others}
            here, there = (HostOfUser(host, victim) for host in both)
            judge_recovery(judge, victim, (here, there))
            judge_programs(judge, f"user {victim}, by memory", here, here, harness.ROUTES["local"])
            judge_programs(judge, f"user {victim}, by wire", here, here, harness.ROUTES["wire"])
            judge_programs(judge, f"user {victim}, two hosts", here, there, None)
            judge_connections(judge, f"user {victim}, by memory", hosts, here, here)
            judge_connections(judge, f"user {victim}, two hosts", hosts, here, there)
            for uid, processes in hostile.items():
                for process in processes:
                    enough = harness.poll_until(lambda p=process, u=uid: len(p.output.splitlines()) >= DEEDS[u], 60, 0.2)
                    running = process.running()
                    judge.say(f"user {uid} attacks", None if enough and running else f"it has only\n{process.output}")
                    process.kill()
    judge.exit()


if __name__ == "__main__":
    main()
