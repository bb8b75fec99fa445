#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's UCX over Verbena, on one host and between two: checks the output of ucx_info, runs ucx_perftest over its verbs
transports, and runs it as users do, without environment variables or with the usual ones.

    run_ucx.py --build build/release
"""

import re

import harness

SECONDS = 120
# By default it sends ten thousand messages to warm up.
LENGTH = ("-n", "200", "-w", "20", "-s", "4096")


def transports(output, device):
    """The transports that ucx_info -d lists for a device."""
    return {transport for transport, of in re.findall(r"Transport: (\S+)\n#\s+Device: (\S+)", output)
            if of == f"{device}:1"}


def measure(host, device, transport, test):
    """Runs ucx_perftest between two processes; returns a complaint, or None."""
    environment = {"UCX_NET_DEVICES": f"{device}:1", "UCX_TLS": f"{transport},self", "UCX_LOG_LEVEL": "warn"}
    result = harness.pair(host, host, ["ucx_perftest"], client_options=("-t", test, *LENGTH),
                          address=host.ipv4, seconds=SECONDS, environment=environment)
    if result.good and "Final:" in result.client.output:
        return None
    return result.report()


# Environments that users set; with {}, UCX selects the transports.
AS_STARTED = ({}, {"UCX_TLS": "ib,self"}, {"UCX_TLS": "rc,self"}, {"UCX_TLS": "tcp,ib,self"})


def as_started(server, client, environment, test):
    """Runs ucx_perftest as a user would; returns a complaint, or None."""
    result = harness.pair(server, client, ["ucx_perftest"], client_options=("-t", test, *LENGTH),
                          seconds=SECONDS, environment=environment)
    return None if result.good and "Final:" in result.client.output else result.report()


def main():
    parser = harness.parser(__doc__)
    harness.add_route_option(parser)
    options = harness.begin(parser, "ip", "setpriv", "ucx_info", "ucx_perftest")
    if not harness.ucx_knows_verbs():
        harness.skip("UCX was built without verbs here")

    judge = harness.Judge()
    with harness.Hosts(options.build, options.route) as hosts:
        host, other = hosts.two()
        alone = hosts.one()
        device = f"rxe_{host.netdev}"
        status, output = host.run("ucx_info", "-d", seconds=SECONDS)
        found = transports(output, device)
        good = status == 0 and {"rc_verbs", "ud_verbs"} <= found
        judge.say("ucx_info -d", None if good else f"exit {status}\n{output}")
        for transport in ("rc_v", "ud_v"):
            for test in ("tag_lat", "tag_bw", "ucp_put_lat", "stream_bw"):
                judge.say(f"ucx_perftest {transport} {test}", measure(host, device, transport, test))
        for where, server, client in (("two hosts", host, other), ("one host", host, host),
                                      ("loopback alone", alone, alone)):
            for environment in AS_STARTED:
                for test in ("tag_bw", "tag_lat"):
                    said = " ".join(f"{name}={value}" for name, value in environment.items()) or "as it is"
                    judge.say(f"{where}: {test}, {said}", as_started(server, client, environment, test))
    judge.exit()


if __name__ == "__main__":
    main()
