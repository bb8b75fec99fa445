#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's unmodified programs that connect by address over Verbena, as an ordinary user: librdmacm's own programs, and
perftest with -R. (rsockets programs: run_rsockets.py.)

    run_connections.py --build build/release                       everything, once, on one host and on two
    run_connections.py --build build/release --program rping --topology two_hosts --repeat 100
"""

import collections
import sys

import connections
import harness

TOPOLOGIES = ("one_host", "two_hosts")


def listeners(host):
    """The number of listening identifiers on a host; 0 if no agent runs yet."""
    management = host.status()["connection_management"]
    return management["listening"] if management else 0


def wait_until_ready(case, host, process, port=None):
    def ready():
        if not process.running():
            return True
        if case.ready_by_tcp:
            return process.listens(port)
        if case.counts_listener:
            return listeners(host) > 0
        return case.ready in process.output
    # Programs that buffer their output print nothing before they end. For these, the client's own retries must suffice.
    return harness.poll_until(ready, 20 if case.counts_listener or case.ready_by_tcp else 3, 0.02)


def run_once(hosts, case, server, client, family):
    """Runs a case once: (complaint or None, Result)."""
    words = {"server": getattr(server, family), "client": getattr(client, family), "any": connections.ANY[family],
             "group": connections.GROUP[family], "port": hosts.port()}
    # Wait until the agent has noticed the end of an earlier server, which was killed.
    harness.poll_until(lambda: not case.counts_listener or listeners(server) == 0, 5)
    # Line-buffered, so that the test sees when the server is ready.
    serving = server.verbena("run", "stdbuf", "-oL", *case.server.format(**words).split())
    wait_until_ready(case, server, serving, words["port"])
    calling = client.verbena("run", *case.client.format(**words).split())
    client_status = calling.wait(case.seconds)
    server_status = None if case.server_stays else serving.wait(10 if client_status == 0 else 1)
    for process in (serving, calling):
        process.kill()
    result = harness.Result(serving, calling, server_status, client_status)
    return case.complaint(result), result


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--topology", choices=TOPOLOGIES, action="append", help="default: both")
    parser.add_argument("--program", action="append", choices=connections.programs(), help="default: all")
    parser.add_argument("--family", action="append", choices=connections.FAMILIES, help="default: both")
    parser.add_argument("--options", help="only cases whose options contain this")
    harness.add_share_options(parser)
    harness.add_route_option(parser)
    parser.add_argument("--repeat", type=int, default=1, help="runs of each case in a row")
    options = parser.parse_args()
    harness.require_root()
    harness.require_programs("ip", "setpriv", "stdbuf", *(options.program or connections.programs()))

    failures, runs = [], 0
    for topology in options.topology or TOPOLOGIES:
        with harness.Hosts(options.build, options.route) as hosts:
            pairs = {}
            for case in harness.share_of(connections.all_cases(), options.share, options.every):
                if options.program and case.program not in options.program:
                    continue
                if options.options and options.options not in case.name or not case.runs_on(topology):
                    continue
                which = case.one_host_netdev if topology == "one_host" else ""
                if which not in pairs:
                    pairs[which] = hosts.two() if which == "" else [hosts.one() if which == "lo" else hosts.two()[0]] * 2
                for family in case.families:
                    if options.family and family not in options.family:
                        continue
                    outcomes = collections.Counter()
                    for _ in range(options.repeat):
                        complaint, result = run_once(hosts, case, *pairs[which], family)
                        runs += 1
                        outcomes["bad" if complaint else "good"] += 1
                        if complaint:
                            failures.append(f"{topology} {family} {case.name}: {complaint}\n{result.report()}")
                            print(f"=== {failures[-1]}", flush=True)
                            if outcomes["bad"] == 3:
                                break
                    verdict = f"FAILED {outcomes['bad']}" if outcomes["bad"] else "ok"
                    print(f"{topology:10} {family} {case.name:64} {outcomes['good']:4} good {verdict}", flush=True)
    print(f"\n{runs} runs, {len(failures)} failures")
    sys.exit(1 if failures or not runs else 0)


if __name__ == "__main__":
    main()
