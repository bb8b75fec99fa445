#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's libfabric over Verbena without environment variables, on one host and between two: fi_info must list endpoints
for messages and datagrams, and fi_pingpong must run over the provider for reliable datagrams.

    run_libfabric.py --build build/release
"""

import time

import harness

SECONDS = 120
PROVIDER = "verbs;ofi_rxm"


def pingpong(server, client):
    """Runs fi_pingpong; returns a complaint, or None."""
    port = server.hosts.port()
    words = ("fi_pingpong", "-p", PROVIDER, "-e", "rdm", "-I", 100)
    serving = server.verbena("run", *words, "-B", port)
    harness.poll_until(lambda: serving.listens(port) or not serving.running(), 20)
    deadline = time.monotonic() + SECONDS
    calling = client.verbena("run", *words, "-P", port, server.ipv4)
    client_status = calling.wait(SECONDS)
    server_status = serving.wait(max(0.0, min(deadline - time.monotonic(), 10.0)))
    for process in (serving, calling):
        process.kill()
    result = harness.Result(serving, calling, server_status, client_status)
    return None if result.good else result.report()


def main():
    parser = harness.parser(__doc__)
    harness.add_route_option(parser)
    options = harness.begin(parser, "ip", "setpriv", "fi_info", "fi_pingpong")

    judge = harness.Judge()
    with harness.Hosts(options.build, options.route) as hosts:
        first, second = hosts.two()
        alone = hosts.one()
        # libfabric creates no message endpoints on loopback. With only loopback, it must list datagram endpoints.
        for where, host, kind in (("with a link", first, "FI_EP_MSG"), ("with a link", first, "FI_EP_DGRAM"),
                                  ("loopback alone", alone, "FI_EP_DGRAM")):
            status, output = host.run("fi_info", "-p", "verbs", "-t", kind, seconds=SECONDS)
            judge.say(f"fi_info {kind}, {where}", None if status == 0 and kind in output else output)
        for where, server, client in (("two hosts", first, second), ("one host", first, first)):
            judge.say(f"fi_pingpong {PROVIDER}, {where}", pingpong(server, client))
    judge.exit()


if __name__ == "__main__":
    main()
