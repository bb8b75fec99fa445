#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Another program has UDP port 4791. Programs on one host must reach each other through shared memory nevertheless, and every
command must show the port as DOWN. After that program has ended, the port must be ACTIVE within a second, also for running
programs.

    run_taken_port.py --build build/release
"""

import re

import harness

SECONDS = 20
HOLDER = "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 4791)); print('ready', flush=True); " \
         "time.sleep(600)"
PAIRS = (["ibv_rc_pingpong", "-g", "0"], ["ibv_uc_pingpong", "-g", "0"], ["ibv_ud_pingpong", "-g", "0"])
# How each command prints the state of the port.
STATES = {
    "verbena link show": (["link", "show"], r"\b(ACTIVE|DOWN)\b"),
    "ibv_devinfo": (["run", "ibv_devinfo"], r"state:\s+PORT_(ACTIVE|DOWN)"),
    "rdma link": (["rdma", "link"], r"state (ACTIVE|DOWN)"),
    "ibstat": (["run", "ibstat"], r"State: (Active|Down)"),
}


def check_states(judge, host, expected):
    for name, (arguments, pattern) in STATES.items():
        status, output = host.command(*arguments)
        found = re.search(pattern, output)
        good = status == 0 and found and found.group(1).upper() == expected
        judge.say(f"{name} says {expected}", None if good else f"status {status}\n{output}")


def check_pair(judge, host, server_words, client_words, ready):
    server = host.verbena("run", *server_words)
    harness.poll_until(lambda: ready(server), SECONDS)
    client = host.verbena("run", *client_words)
    outputs = [harness.Host.finish(each, SECONDS) for each in (server, client)]
    good = all(status == 0 for status, _ in outputs)
    judge.say(f"{server_words[0]} by memory", None if good else f"{outputs}")


def main():
    options = harness.begin(__doc__, "ip", "ibv_rc_pingpong", "ibv_asyncwatch", "rping", "python3")
    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        host = hosts.one()
        holder = host.start(["python3", "-c", HOLDER])
        harness.poll_until(lambda: "ready" in holder.output, SECONDS)
        check_states(judge, host, "DOWN")
        for words in PAIRS:
            check_pair(judge, host, words, [*words, host.ipv4], lambda server: server.listens(18515))
        rping = ["rping", "-a", host.ipv4, "-C", "5", "-v"]
        check_pair(judge, host, [*rping, "-s"], [*rping, "-c"], lambda _: host.status()["connection_management"]["listening"] > 0)

        watch = host.verbena("run", "ibv_asyncwatch", "-d", "rxe_lo")
        harness.poll_until(lambda: "async event FD" in watch.output, SECONDS)
        holder.kill()
        heard = harness.poll_until(lambda: "IBV_EVENT_PORT_ACTIVE" in watch.output, 2)
        judge.say("a running program gets the event that its port is ACTIVE", None if heard else watch.output)
        check_states(judge, host, "ACTIVE")
    judge.exit()


if __name__ == "__main__":
    main()
