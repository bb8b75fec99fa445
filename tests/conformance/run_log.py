#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the output of VERBENA_LOG=error: nothing while Debian's programs work; one line with object, reason and next step
when a connection fails.

    run_log.py --build build/release
"""

import re

import harness

SECONDS = 20
LOG = {"VERBENA_LOG": "error"}
LINE = re.compile(r"^verbena\[\d+\] .*$", re.MULTILINE)


def lines(*processes):
    return [line for process in processes for line in LINE.findall(process.output)]


def is_quiet(*processes):
    """None if the programs succeed and the log is empty, else a complaint."""
    for process in processes:
        if process.wait(SECONDS) != 0:
            return f"{' '.join(process.command)} fails\n{process.output}"
    return "\n".join(lines(*processes)) or None


def start(host, *command):
    return host.verbena("run", *command, environment=LOG)


def check_healthy(judge, server, client, where):
    index = server.gid_index(server.ipv4)
    for name, command in {
            "ib_write_bw without -x": ["ib_write_bw", "-n", "100"],
            "ib_send_lat by an event channel": ["ib_send_lat", "-n", "100", "-e"],
            "ibv_rc_pingpong": ["ibv_rc_pingpong", "-g", index, "-n", "100"],
    }.items():
        result = harness.pair(server, client, command, environment=LOG, seconds=SECONDS)
        judge.say(f"{where}: {name}", is_quiet(result.server, result.client) if result.good else result.report())
    listener = start(server, "rping", "-s", "-a", server.ipv4, "-C", "3")
    harness.poll_until(lambda: server.status()["connection_management"]["listening"] or not listener.running(), SECONDS, 0.1)
    caller = start(client, "rping", "-c", "-a", server.ipv4, "-C", "3")
    judge.say(f"{where}: rping", is_quiet(caller, listener))


def expect(judge, what, host, command, *patterns):
    """The program must fail, and the log must have one line per pattern and no others."""
    process = start(host, *command)
    process.wait(SECONDS)
    found = lines(process)
    good = len(found) == len(patterns) and all(re.search(pattern, line) for pattern, line in zip(patterns, found))
    judge.say(what, None if good else f"wanted {patterns}\n{process.output}")


def check_failures(judge, host, other):
    expect(judge, "REJECTED names the peer and the reason", host, ["rping", "-c", "-a", other.ipv4, "-p", "7999", "-C", "1"],
           rf"RDMA_CM_EVENT_REJECTED for {other.ipv4} port 7999, status 8 .*nobody listens")
    expect(judge, "ADDR_ERROR names the peer and the reason", host, ["rping", "-c", "-a", "10.9.0.77", "-C", "1"],
           r"RDMA_CM_EVENT_ADDR_ERROR for 10.9.0.77 port \d+, status -ETIMEDOUT: no answer to ARP")
    expect(judge, "a missing route is named", host, ["rping", "-c", "-a", "203.0.113.5", "-C", "1"],
           r"rdma_resolve_addr\(\) failed, ENETUNREACH .*: no route to 203\.0\.113\.5$")


def check_peers(judge, host, other):
    """Unreachable destinations. Without a route or neighbour, RTR must fail, as with the kernel's RDMA core. For a peer queue
    pair that does not answer, the retry error must say what is known about it."""
    program = [host.hosts.build.folder / "tests" / "connects_to", f"rxe_{host.netdev}", host.gid_index(host.ipv4)]
    expect(judge, "RTR without a route", host, [*program, "::ffff:203.0.113.5", "0x11"],
           r"ibv_modify_qp\(\) failed, ENETUNREACH .*no route to 203\.0\.113\.5 from 10\.9\.0\.1")
    expect(judge, "RTR without an IPv6 route", host,
           [*program[:2], host.gid_index(host.ipv6), "2001:db8::1", "0x11"],
           r"ibv_modify_qp\(\) failed, ENETUNREACH .*no route to 2001:db8::1 from fd09::1")
    expect(judge, "RTR to an address that nobody has", host, [*program, "::ffff:10.9.0.77", "0x11"],
           r"ibv_modify_qp\(\) failed, ETIMEDOUT .*10\.9\.0\.77 does not answer ARP")
    expect(judge, "RTR to an IPv6 address that nobody has", host, [*program[:2], host.gid_index(host.ipv6), "fd09::77", "0x11"],
           r"ibv_modify_qp\(\) failed, ETIMEDOUT .*fd09::77 does not answer neighbour discovery")
    retries = r"failed, transport retry counter exceeded \(12\): QP 0x\w+ at [\d.]+ has not answered .*: "
    expect(judge, "a peer on this host that is not in RTR", host, [*program, f"::ffff:{host.ipv4}", "0"],
           retries + "its process on this host runs and drops the requests")
    expect(judge, "a QP number on this host that nobody has", host, [*program, f"::ffff:{host.ipv4}", "0xabcdef"],
           retries + "no process of this host has this queue pair")
    expect(judge, "a QP number on another host", host, [*program, f"::ffff:{other.ipv4}", "0xabcdef"],
           retries + "its process may have ended")


def main():
    options = harness.begin(__doc__, "ip", "setpriv", "ibv_devinfo", "ib_write_bw", "ib_send_lat", "ibv_rc_pingpong", "rping")
    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        first, second = hosts.two()
        for command in (["ibv_devinfo"], ["ibv_devinfo", "-v"], ["ibv_devices"]):
            judge.say(" ".join(command), is_quiet(start(first, *command)))
        check_healthy(judge, first, first, "one host")
        check_healthy(judge, first, second, "two hosts")
        check_failures(judge, first, second)
        check_peers(judge, first, second)
    judge.exit()


if __name__ == "__main__":
    main()
