#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the RC tests of Debian's qperf over Verbena, on one host or two.

    run_qperf.py --build build/release [--route wire]

A test passes if qperf exits with status 0 and prints its figure; the `ver_*` tests check the results of atomics. qperf
connects through librdmacm (`-cm1`): without it qperf sets no GID, which RoCE requires. Its UC, UD and XRC tests have no such
option.
"""

import re

import harness

TEST_SECONDS = 20  # a test runs for one second; the rest is a reserve for busy machines
PORT = 19765
TESTS = ("rc_lat", "rc_bw", "rc_bi_bw", "rc_rdma_read_lat", "rc_rdma_read_bw", "rc_rdma_write_lat", "rc_rdma_write_bw",
         "rc_rdma_write_poll_lat", "rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add")
FIGURE = re.compile(r"(latency|bw|msg_rate)\s+=\s+[0-9.]+ \S+")


def judge_tests(judge, where, server, client):
    serving = server.verbena("run", "qperf")
    harness.poll_until(lambda: serving.listens(PORT) or not serving.running(), 20)
    for test in TESTS:
        status, output = client.run("qperf", "-cm1", "-t", "1", server.ipv4, test, seconds=TEST_SECONDS)
        passed = status == 0 and FIGURE.search(output)
        judge.say(f"{where}: {test}", None if passed else f"exit status {status}\n{output}\n--- server\n{serving.output}")
    serving.kill()


def main():
    parser = harness.parser(__doc__)
    harness.add_route_option(parser)
    options = harness.begin(parser, "ip", "setpriv", "qperf")

    judge = harness.Judge()
    with harness.Hosts(options.build, options.route) as hosts:
        first, second = hosts.two()
        judge_tests(judge, "one host", first, first)
        if options.route == "local":  # between two hosts, the wire is the only route
            judge_tests(judge, "two hosts", first, second)
    judge.exit()


if __name__ == "__main__":
    main()
