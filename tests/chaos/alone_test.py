#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""alone_test.py BUILD [--route ROUTE] [--seconds S] [--bare] PROGRAM [ARGUMENT...]: runs a self-checking program of
build/tests on its own host. The host's address is its last argument. At the end nothing may be left: the agent must exit too,
without ports or files."""

import argparse
import pathlib

import talkers
from talkers import harness


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--bare", action="store_true", help="without `verbena run`: it finds the libraries itself")
    harness.add_route_option(parser)
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    harness.require_root()
    harness.require_programs("ip", "setpriv")
    judge = harness.Judge()
    with harness.Hosts(options.build, options.route) as hosts:
        host = hosts.one()
        program, *arguments = options.program
        command = ("sh", "-c", 'ulimit -c 0; exec "$@"', "sh", pathlib.Path(options.build).resolve() / "tests" / program, *arguments, host.ipv4)
        before = talkers.namespace_folders(host)  # inodes of namespaces are reused, so a killed agent may have left folders for this one
        talkers.start_short_agent(host)
        process = host.start(command) if options.bare else host.verbena("run", *command)
        status, output = host.finish(process, options.seconds)
        print(output)
        judge.say(" ".join(options.program), None if status == 0 else "it hangs" if status is None else f"exit status {status}")
        gone = harness.poll_until(lambda: not host.status()["processes"], 5, 0.05)
        judge.say("the agent has no process left", None if gone else str(host.status()["processes"]))
        gone = harness.poll_until(lambda: not host.agents(), 30, 0.1)
        judge.say("the agent has gone", None if gone else str(host.agents()))
        judge.say("no port is left", " ".join(talkers.sockets(host)) or None)
        judge.say("no file is left", " ".join(set(talkers.namespace_folders(host)) - set(before)) or None)
    judge.exit()


if __name__ == "__main__":
    main()
