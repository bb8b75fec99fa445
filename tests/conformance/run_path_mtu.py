#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Path MTUs that exceed the port's active MTU, and ends with different path MTUs: Debian's ibv_rc_pingpong on network devices
of MTU 1500 (active MTU 1024).

    run_path_mtu.py --build build/release
"""

import re

import harness

CUT = "leave in IP fragments"  # part of the log line


def pingpong(server, client, family, server_mtu, client_mtu, route="local"):
    index = server.gid_index(getattr(server, family))
    other = client.gid_index(getattr(client, family))
    return harness.pair(server, client, ["ibv_rc_pingpong", "-c", "-s", "65536", "-n", "100"],
                        server_options=["-g", index, "-m", server_mtu], client_options=["-g", other, "-m", client_mtu],
                        address=server.ipv4, seconds=40, environment={**harness.ROUTES[route], "VERBENA_LOG": "warning"})


def larger(server, client, family, route, cut):
    """Messages with a path MTU of 4096: a complaint, or None. `cut`: whether they must leave in IP fragments."""
    result = pingpong(server, client, family, 4096, 4096, route)
    if not result.good:
        return result.report()
    for process in (result.server, result.client):
        lines = [line for line in process.output.splitlines() if CUT in line]
        if len(lines) != (1 if cut else 0):
            return f"{len(lines)} lines of fragments\n{result.report()}"
    return None


def different(server, client, route):
    """The server has a path MTU of 1024, the client one of 4096. As with Linux rxe, both ends must report an invalid request.
    Returns a complaint, or None."""
    result = pingpong(server, client, "ipv4", 1024, 4096, route)
    for process in (result.server, result.client):
        if not re.search(r"Failed status remote invalid request error \(9\)", process.output):
            return result.report()
    if "path MTU mismatch: local 1024, packet has 4096" not in result.server.output:
        return f"the server's log does not name the path MTUs\n{result.report()}"
    return None


def main():
    options = harness.begin(__doc__, "ip", "setpriv", "ibv_rc_pingpong")
    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        one, two = hosts.two()
        for family in ("ipv4", "ipv6"):
            for route in harness.ROUTES:
                judge.say(f"one host, {route}, {family}: path MTU 4096", larger(one, one, family, route, False))
            judge.say(f"two hosts, {family}: path MTU 4096", larger(one, two, family, "local", True))
        judge.say("one host, local: path MTUs 1024 and 4096", different(one, one, "local"))
        judge.say("one host, wire: path MTUs 1024 and 4096", different(one, one, "wire"))
        judge.say("two hosts: path MTUs 1024 and 4096", different(one, two, "local"))
    judge.exit()


if __name__ == "__main__":
    main()
