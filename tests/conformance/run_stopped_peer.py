#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process is stopped for some seconds while its peer on another host waits for it. The agent answers for it, so no
connection is lost. Otherwise the peer would give up after half a second.

    run_stopped_peer.py --build build/release
"""

import os
import signal
import time

import harness

STOPPED = 3
SECONDS = 40
# Each message waits for the previous one, so both ends are always waiting. The run would take minutes; the test ends it earlier.
PINGPONG = ["ibv_rc_pingpong", "-d", "rxe_eth0", "-n", "10000000", "-s", "16384"]
SENT_BEFORE = 200  # packets, after which both are in the middle of the exchange


def pair_of(host, process):
    """The process's queue pair in `verbena status --json`; empty if it has none."""
    found = [pair for one in host.status()["processes"] if one["pid"] == process.pid for pair in one["queue_pairs"]]
    return found[0] if found else {}


def sent(host, process):
    return pair_of(host, process).get("counters", {}).get("sent_packets", 0)


def check_pingpong(judge, first, second, stopped_is_server):
    words = PINGPONG + ["-g", str(first.gid_index(first.ipv4, "rxe_eth0"))]
    server = first.verbena("run", *words)
    harness.poll_until(lambda: server.listens(18515), SECONDS)
    client = second.verbena("run", *words, first.ipv4)
    harness.poll_until(lambda: sent(second, client) > SENT_BEFORE, SECONDS)
    stopped, host = (server, first) if stopped_is_server else (client, second)
    os.kill(stopped.pid, signal.SIGSTOP)
    time.sleep(STOPPED)
    before = sent(host, stopped)
    os.kill(stopped.pid, signal.SIGCONT)
    goes_on = harness.poll_until(lambda: sent(host, stopped) > before + SENT_BEFORE, SECONDS)
    states = [pair_of(first, server).get("state"), pair_of(second, client).get("state")]
    for process in (server, client):
        process.kill()
    who = "server" if stopped_is_server else "client"
    judge.say(f"ibv_rc_pingpong, the {who} stopped for {STOPPED} s",
              None if goes_on and states == ["RTS", "RTS"] else f"{before} {states}\n{server.output}{client.output}")


def main():
    options = harness.begin(__doc__, "ip", "ibv_rc_pingpong", "ibv_devinfo")
    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        first, second = hosts.two()
        for stopped_is_server in (True, False):
            check_pingpong(judge, first, second, stopped_is_server)
    judge.exit()


if __name__ == "__main__":
    main()
