#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Verbena's versions of librdmacm's programs with Debian's: each pairs with itself and with Debian's, on one host and
on two; and each gets command lines that are wrong or cannot succeed. Output must equal Debian's except for numbers. --json
must have its documented keys.

    run_own_connections.py --build build/release
    run_own_connections.py --build build/release --program rping --topology one_host
"""

import dataclasses
import json
import re
import sys

import connections
import harness
from run_connections import wait_until_ready, listeners

TOPOLOGIES = ("one_host", "two_hosts")
PAIRS = (("debian", "debian"), ("ours", "ours"), ("ours", "debian"), ("debian", "ours"))
PROGRAMS = ("rping", "ucmatose", "udaddy", "mckey", "cmtime", "rdma_client", "rdma_server", "rdma_xclient", "rdma_xserver")

# Numbers differ from run to run.
NUMBER = re.compile(r"-?0x[0-9a-f]+|\b\d[\d.]*\b|(?<=[ (])-\d+")
# Debian's rping prints these lines or not, depending on its threads: one may end the program before another prints.
NOW_AND_THEN = {"client DISCONNECT EVENT...", "wait for CONNECTED state N", "connect error N"}
# Ours adds the reason and a remedy in parentheses.
REMEDY = re.compile(r" ?\([^()]*(\([^()]*\)[^()]*)*\)$")
OURS_ALONE = re.compile(r"\s*\[?--json\]?")


def cases():
    """The cases that Debian's programs must pass, and options that matter only between two implementations."""
    own = set(PROGRAMS)
    from_there = connections.Connecting("rping", "rping -s -a {any} -p {port} -v",
                                        "rping -c -a {server} -I {client} -p {port} -v -C 2", expect_client="(?s)(ping data: .*){2}")
    sends_only = connections.Connecting("mckey", "mckey -m {group} -b {server} -l", "mckey -m {group} -b {client} -s -o",
                                        counts_listener=False, ready="joined dgid", one_host_netdev="eth0",
                                        expect_server="data transfers complete")
    bound = connections.Connecting("cmtime", "cmtime -b {any} -p {port}", "cmtime -s {server} -b {client} -p {port} -c 20 -r 1 -t 3000",
                                   server_stays=True, expect_client="bind addr")
    more = [from_there, sends_only, bound, connections.rping("-S", "4000", count=3), connections.ucmatose("-t", "8"),
            connections.ucmatose("-S", "65536", "-C", "3"), connections.udaddy("-t", "8"),
            dataclasses.replace(connections.udaddy("-C", "0"), expect_client="return status 0")]
    return [case for case in connections.connecting() if case.program in own] + more


def start(host, whose, words, environment=None):
    if whose == "ours":
        return host.start(["stdbuf", "-oL", host.hosts.build.program, *words], environment=environment)
    return host.verbena("run", "stdbuf", "-oL", *words, environment=environment)


def lines_of(output):
    """The sorted lines, without parts that may differ. Sorted, because standard output and standard error mix at random."""
    lines = []
    for line in output.splitlines():
        if OURS_ALONE.match(line):
            continue
        line = NUMBER.sub("N", REMEDY.sub("", line))
        # Columns of a table touch each other if a number is wide.
        line = re.sub(r"(N ?)+$", "N", " ".join(line.split()))
        if line and line not in NOW_AND_THEN:
            lines.append(line)
    return sorted(lines)


def difference(reference, output):
    wanted, found = lines_of(reference), lines_of(output)
    if wanted == found:
        return None
    return (f"--- Debian's says, ours does not: {[line for line in wanted if line not in found]}\n"
            f"--- ours says, Debian's does not: {[line for line in found if line not in wanted]}\n{output}")


def run_pair(hosts, case, server, client, whose, family):
    words = {"server": getattr(server, family), "client": getattr(client, family), "any": connections.ANY[family],
             "group": connections.GROUP[family], "port": hosts.port()}
    harness.poll_until(lambda: not case.counts_listener or listeners(server) == 0, 5)
    serving = start(server, whose[0], case.server.format(**words).split())
    wait_until_ready(case, server, serving)
    calling = start(client, whose[1], case.client.format(**words).split())
    client_status = calling.wait(case.seconds)
    server_status = None if case.server_stays else serving.wait(10 if client_status == 0 else 1)
    for process in (serving, calling):
        process.kill()
    return harness.Result(serving, calling, server_status, client_status)


def judge_pairs(judge, hosts, topology, options):
    pairs = {}
    for case in harness.share_of(list(cases()), options.share, options.every):
        if options.program and case.program not in options.program:
            continue
        which = case.one_host_netdev if topology == "one_host" else ""
        if which not in pairs:
            pairs[which] = hosts.two() if which == "" else [hosts.one() if which == "lo" else hosts.two()[0]] * 2
        for family in case.families[:1] if options.one_family else case.families:
            reference = None
            for whose in PAIRS:
                result = run_pair(hosts, case, *pairs[which], whose, family)
                wrong = case.complaint(result)
                if reference is None:
                    reference = result
                elif not wrong:
                    wrong = (difference(reference.server.output, result.server.output) or
                             difference(reference.client.output, result.client.output))
                judge.say(f"{topology} {family} {'/'.join(whose)} {case.name}", wrong and f"{wrong}\n{result.report()}")


# Programs with arguments that are wrong or lead nowhere. {away} is an address without a route.
WRONG = {
    "rping": ["", "-s -c -x", "-x", "-c", "-s -S 22", "-s -S 65536", "-c -C -1", "-s -a no.such.host.invalid",
              "-c -a {server} -p 7999 -C 1", "-s -a {away}", "-c -a {away} -C 1", "--wrong", "-p"],
    "ucmatose": ["-x", "-s", "--wrong", "-s {server} -p 7999", "-b {away}", "-s no.such.host.invalid", "-s {away}",
                 "-f bogus -s {server} -p 7999", "-P bogus -s {server} -p 7999", "-s {server} -b {away}",
                 "-f ip -s localhost"],
    "udaddy": ["-x", "-c", "--wrong", "-b {away}", "-s no.such.host.invalid", "-s {away}", "-s {server} -S 5000",
               "-f bogus -s {away}", "-P bogus -s {away}", "-s {server}"],
    "mckey": ["-x", "", "-M ff0e::1", "--wrong", "-m no.such.host.invalid", "-m 239.1.2.3 -b {away}",
              "-m 239.1.2.3 -b {server} -S 5000", "-M ff0e::1 -b {server}"],
    "cmtime": ["-x", "-s", "--wrong", "-s no.such.host.invalid -c 2", "-s {server} -p 7999 -c 1",
               "-s {server} -b {away} -c 1 -r 0"],
    "rdma_client": ["-x", "-s", "--wrong", "-s no.such.host.invalid", "-s {server} -p 7999", "-s {away}"],
    "rdma_server": ["-x", "-s", "--wrong", "-s no.such.host.invalid", "-s {away}"],
    "rdma_xclient": ["-x", "-c", "-c q", "--wrong", "-s no.such.host.invalid", "-s {server} -p 7999", "-c x -s {server} -p 7999"],
    "rdma_xserver": ["-x", "-c", "-c q", "--wrong", "-s {server}"],
}

def judge_wrong_words(judge, host, options):
    # Its agent serves all following programs, so no agent starts or ends between two of them.
    holder = host.verbena("run", "rping", "-s", "-a", host.ipv4, "-p", "7001")
    if not harness.poll_until(lambda: not holder.running() or listeners(host) > 0, 20) or not holder.running():
        raise RuntimeError(f"rping -s: {holder.output}")
    words = {"server": host.ipv4, "away": "198.51.100.7"}
    for program, wrong_words in WRONG.items():
        if options.program and program not in options.program:
            continue
        for each in wrong_words:
            arguments = each.format(**words).split()
            debians, ours = (host.finish(start(host, whose, [program, *arguments]), 25) for whose in ("debian", "ours"))
            wrong = None
            if ours[0] is None:
                wrong = "ours did not end"
            elif debians[0] != ours[0]:
                wrong = f"Debian's ends with {debians[0]}, ours with {ours[0]}"
            wrong = wrong or difference(debians[1], ours[1])
            judge.say(f"wrong words: {program} {each}", wrong and f"{wrong}\n--- Debian's:\n{debians[1]}--- ours:\n{ours[1]}")
    holder.kill()


# For each program: server, client, and values that the client's JSON object must contain.
JSON = {
    "rping": ("rping -s -a {any} -p {port}", "rping -c -a {server} -p {port} -C 5 -V --json",
              {"program": "rping", "role": "client", "pings": 5, "ping_bytes": 64, "validated": True}),
    "ucmatose": ("ucmatose -b {any} -p {port} -c 2", "ucmatose -s {server} -p {port} -c 2 --json",
                 {"program": "ucmatose", "role": "client", "connections": 2, "messages": 10, "message_bytes": 100}),
    "udaddy": ("udaddy -b {any}", "udaddy -s {server} --json",
               {"program": "udaddy", "role": "client", "connections": 1, "messages": 10}),
    "cmtime": ("cmtime -b {any} -p {port}", "cmtime -s {server} -p {port} -c 5 --json",
               {"program": "cmtime", "connections": 5, "connected": 5}),
    "rdma_client": ("rdma_server -s {any} -p {port}", "rdma_client -s {server} -p {port} --json",
                    {"program": "rdma_client", "message_bytes": 16}),
    "rdma_xclient": ("rdma_xserver -p {port} -c x", "rdma_xclient -s {server} -p {port} -c x --json",
                     {"program": "rdma_xclient", "communication": "XRC", "message_bytes": 16}),
}


def wrong_with(output, wanted):
    try:
        found = json.loads(output)
    except ValueError as error:
        return f"no object and nothing else: {error}\n{output}"
    differing = {key: found.get(key) for key, value in wanted.items() if found.get(key) != value}
    return f"not {wanted}, but {differing}" if differing else None


def judge_json(judge, hosts, host, options):
    for program, (server, client, wanted) in JSON.items():
        if options.program and program not in options.program:
            continue
        case = connections.Connecting(program, server, client, server_stays=program == "cmtime")
        result = run_pair(hosts, case, host, host, ("ours", "ours"), "ipv4")
        # rping prints the disconnection to standard error, and the test does not separate the two streams.
        output = result.client.output.replace("client DISCONNECT EVENT...\n", "")
        judge.say(f"--json: {program}", case.complaint(result) or wrong_with(output, wanted))


def judge_quarrels(judge, hosts, host, options):
    """Ends whose sizes do not match must fail with a message."""
    if options.program and "rping" not in options.program:
        return
    case = connections.Connecting("rping", "rping -s -a {any} -p {port} -S 64", "rping -c -a {server} -p {port} -S 4000 -C 1")
    result = run_pair(hosts, case, host, host, ("ours", "ours"), "ipv4")
    said = "does not fit" in result.server.output
    judge.say("rping: a ping that is larger than the server's buffer", None if said and result.server_status == 255 else result.report())


def judge_strangers(judge, hosts, host, options):
    """A client with a different protocol ends its server, but does no other harm."""
    if options.program and "rping" not in options.program:
        return
    case = connections.Connecting("rping", "rping -s -a {any} -p {port}", "rdma_client -s {server} -p {port}", seconds=20)
    result = run_pair(hosts, case, host, host, ("ours", "ours"), "ipv4")
    judge.say("rping: rdma_client as its client", None if result.server_status in (0, 255) else result.report())


def judge_persistent(judge, hosts, host, options):
    """One server of ours serves clients of both sides at the same time."""
    if options.program and "rping" not in options.program:
        return
    port = str(hosts.port())
    serving = start(host, "ours", ["rping", "-s", "-P", "-a", host.ipv4, "-p", port])
    harness.poll_until(lambda: not serving.running() or listeners(host) > 0, 20)
    words = ["rping", "-c", "-a", host.ipv4, "-p", port, "-C", "200", "-V"]
    calling = [start(host, whose, words) for whose in ("ours", "debian", "ours", "debian")]
    ended = [host.finish(each, 60) for each in calling]
    still_serves = serving.running()
    serving.kill()
    good = still_serves and all(status == 0 for status, _ in ended)
    judge.say("rping -P: four clients at a time", None if good else f"{ended}\n{serving.output}")


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--topology", choices=TOPOLOGIES, action="append", help="default: both")
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="default: all")
    parser.add_argument("--one-family", action="store_true", help="IPv4 only")
    parser.add_argument("--only", choices=("pairs", "words"), help="default: both")
    harness.add_share_options(parser)
    options = harness.begin(parser, "ip", "setpriv", "stdbuf", *PROGRAMS)
    judge = harness.Judge()
    if options.only != "pairs":
        with harness.Hosts(options.build) as hosts:
            host = hosts.two()[0]
            judge_wrong_words(judge, host, options)
            judge_json(judge, hosts, host, options)
            judge_quarrels(judge, hosts, host, options)
            judge_strangers(judge, hosts, host, options)
            judge_persistent(judge, hosts, host, options)
    for topology in (options.topology or TOPOLOGIES) if options.only != "words" else ():
        with harness.Hosts(options.build) as hosts:
            judge_pairs(judge, hosts, topology, options)
    judge.exit()


if __name__ == "__main__":
    sys.exit(main())
