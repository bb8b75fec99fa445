#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes thousands of connections in all the ways in which programs use librdmacm, on one host and between two. None may fail.
It prints the seed; `--seed` repeats a run, `--count` changes its length.

    run_connection_storm.py --build build/release
"""

import random

import harness

THREADS = 6


def storm(hosts, server, client, count, seed):
    """Runs one storm; returns a complaint, or None."""
    program = hosts.build.folder / "tests" / "connection_storm"
    port = hosts.port()
    serving = server.verbena("run", program, "listen", port)
    if not harness.poll_until(lambda: "ready" in serving.output or not serving.running(), 30):
        return f"the server does not come up:\n{serving.output}"
    status, output = client.run(program, "connect", server.ipv4, port, count, seed, THREADS, seconds=100)
    serving.kill()
    complaints = [line for line in serving.output.splitlines() if line.startswith("server, ")]
    return None if status == 0 and not complaints else "\n".join([f"seed {seed}, exit status {status}", output, *complaints])


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--count", type=int, default=1500, help="connections on each of the two topologies")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    options = harness.begin(parser, "ip")

    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        first, second = hosts.two()
        for what, client in (("one host", first), ("two hosts", second)):
            judge.say(f"{what}: {options.count} connections, seed {options.seed}",
                      storm(hosts, first, client, options.count, options.seed))
    judge.exit()


if __name__ == "__main__":
    main()
