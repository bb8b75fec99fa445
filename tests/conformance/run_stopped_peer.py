#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process that is stopped for some seconds, in the middle of what its peer on another host asks of it: its agent answers
for it, and no connection is lost. Its peers give up after half a second else.

    run_stopped_peer.py --build build/release
"""

import argparse
import os
import signal
import time

import harness

STOPPED = 3
SECONDS = 40
# Takes some seconds. Each message waits for the one before, so both ends always wait for the other.
PINGPONG = ["ibv_rc_pingpong", "-d", "rxe_eth0", "-n", "10000", "-s", "16384"]


def check_pingpong(judge, first, second, stopped_is_server):
    words = PINGPONG + ["-g", str(first.gid_index(first.ipv4, "rxe_eth0"))]
    server = first.verbena("run", *words)
    harness.poll_until(lambda: server.listens(18515), SECONDS)
    client = second.verbena("run", *words, first.ipv4)
    harness.poll_until(lambda: "remote address" in client.output, SECONDS)
    time.sleep(0.3)  # in the middle of it
    stopped = server if stopped_is_server else client
    os.kill(stopped.pid, signal.SIGSTOP)
    time.sleep(STOPPED)
    alive = server.running() and client.running()
    os.kill(stopped.pid, signal.SIGCONT)
    outputs = [harness.Host.finish(each, SECONDS) for each in (server, client)]
    good = alive and all(status == 0 for status, _ in outputs)
    who = "server" if stopped_is_server else "client"
    judge.say(f"ibv_rc_pingpong, the {who} stopped for {STOPPED} s", None if good else f"{alive} {outputs}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, such as build/release")
    options = parser.parse_args()
    harness.require_root()
    harness.require_programs("ip", "ibv_rc_pingpong", "ibv_devinfo")
    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        first, second = hosts.two()
        for stopped_is_server in (True, False):
            check_pingpong(judge, first, second, stopped_is_server)
    judge.exit()


if __name__ == "__main__":
    main()
