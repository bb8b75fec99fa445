#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the raw_ethernet_* tests of `verbena perf` against Debian's perftest in both roles, between two hosts and as root: raw
packets need CAP_NET_RAW. Both ends must end well and print the same lines, and the figures must agree with each other.

    run_raw_perf.py --build build/release
    run_raw_perf.py --build build/release --test raw_ethernet_lat
"""

import json
import signal
import sys

import harness
import own_programs
import run_perf

PORTS = "-J 10.9.0.1 -j 10.9.0.2 -K 4000 -k 4001"
IPV6 = "--raw_ipv6 -J fd00::9:1 -j fd00::9:2"
PACED = "--rate_limit_type=PP --rate_limit=100 --rate_units=M --burst_size=16 -Q 1"

# Options for both ends, with Debian's at one of them. Frames have no flow control, so each one finds a receive.
LINES = {
    "raw_ethernet_bw": ["-n 500", "-n 500 -s 64", f"-n 500 -s 64 {PORTS}", f"-n 500 {PORTS} --tcp", f"-n 500 {IPV6}", "-n 500 --vlan_pcp 3", "-n 500 -b",
                        "-n 500 -l 10 -s 64", "-n 500 --recv_post_list=10", "-n 500 -I 64 -s 64", f"-n 504 -s 64 {PORTS} --flows 4 --flows_burst 3", "-D 2 -f 0 -s 1000",
                        "-n 500 --report_gbits", f"-n 500 {PORTS} -T 16 -L 3", "-n 500 -m 1000", "-n 500 --ethertype 0x88b5"],
    "raw_ethernet_lat": ["", PORTS, "-s 1500", "-D 2 -f 0", f"-s 64 {PORTS} --flows 3", "--latency_gap=10 -n 100", "--vlan_en", IPV6],
    # Debian's server ends with the last frame, whether its answers are on their way or not: none is due for the last frames.
    "raw_ethernet_burst_lat": [f"-n 1700 -r 1800 --reply_every 300 {PACED}", f"-n 1700 -r 1800 --reply_every 300 {PORTS} {PACED}"],
}
# Options that only ours have, or with which perftest's ends do not reach each other.
OWN_LINES = {
    "raw_ethernet_bw": [f"-n 500 {IPV6} -K 4000 -k 4001", f"-n 500 {IPV6} -T 16 --flow_label 77", f"-n 500 {PORTS} -Y 0x88b5",
                        "-n 500 --raw_mcast -J 239.1.2.3", "-n 504 -s 64 --vlan_pcp 8", "-n 500 -q 2", "-n 500 -e", "-n 500 --promiscuous"],
    "raw_ethernet_lat": [f"{PORTS} --vlan_pcp 8 -n 100", "-e"],
    "raw_ethernet_burst_lat": [f"-n 500 {PACED}", f"-n 500 {PORTS} --reply_every 4", "-n 500 --rate_limit=100 --rate_units=M --burst_size=16", "-n 500"],
}


def start(host, peer, side, role, test, words):
    name, first = (test, []) if side == "d" else ("perf", [test])
    ends = ["-d", f"rxe_{host.netdev}", f"--{role}", "-B", host.mac(), "-E", peer.mac()]
    return own_programs.Run(host, side, name, [*first, *ends, *words], user=[])


def pair(server, client, sides, tests, server_words, client_words):
    """Starts the client when the server's queue pairs receive: the ends have no other way to find out."""
    serving = start(server, client, sides[0], "server", tests[0], server_words)

    def is_up():
        pairs = [pair["state"] for process in server.status(user=[])["processes"] for pair in process["queue_pairs"]
                 if process["pid"] == serving.process.pid]
        return "RTS" in pairs or "RTR" in pairs or not serving.running()  # Debian's server, which sends nothing, stays in RTR

    harness.poll_until(is_up, 20, step=0.1)
    calling = start(client, server, sides[1], "client", tests[1], client_words)
    calling.finish(60)
    serving.finish(10 if calling.status == 0 else 2)
    return run_perf.Ended(serving), run_perf.Ended(calling)


def check(judge, server, client, test, line, all_sides):
    words = line.split()
    expected = None
    if "d" in "".join(all_sides):  # Debian's with itself prints the lines that ours must print
        expected = [each.labels for each in pair(server, client, "dd", (test, test), words, words)]
    for sides in all_sides:
        ended = pair(server, client, sides, (test, test), words, words)
        judge.say(f"{test} {line} {sides}", run_perf.wrong(test, words, sides, ended, expected))


def check_json(judge, server, client):
    for test in LINES:
        ended = pair(server, client, "oo", (test, test), ["-n", "400"], ["-n", "400", "--json"])
        try:
            report = json.loads(ended[1].run.stdout)
            good = report["test"] == test and report["peer_mac"] == server.mac().upper() and report["results"][0]["average"] > 0
        except (ValueError, KeyError, IndexError):
            good = False
        judge.say(f"{test} --json", None if good and ended[0].good() else ended[1].run.report())


def check_forwarding(judge, server, client):
    """A forwarder sends frames of a latency test back, by the thousand, whatever their size is. A client of Debian's gets them, too."""
    for sides in ("oo", "od"):
        ended = pair(server, client, sides, ("raw_ethernet_bw", "raw_ethernet_lat"), ["--mac_fwd", "-n", "1000"], ["-n", "1000", "-s", "700"])
        good = all(each.good() and each.rows and each.rows[0][1] == 1000 for each in ended)
        judge.say(f"raw_ethernet_bw --mac_fwd {sides}", None if good else "\n".join(each.run.report() for each in ended))


def check_endless(judge, server, client):
    """--run_infinitely prints rows until it is interrupted."""
    words = ["--run_infinitely", "-D", "1", "-f", "0", "-s", "1000"]
    for sides in run_perf.PAIRS:
        both = [start(server, client, sides[0], "server", "raw_ethernet_bw", words), start(client, server, sides[1], "client", "raw_ethernet_bw", words)]
        grown = harness.poll_until(lambda: all(len(run_perf.rows(each.said(0))) > 1 for each in both), 20, step=0.1)
        for each in both:
            each.process.send_signal(signal.SIGINT)
            each.finish(5)
        good = grown and all(each.status == -signal.SIGINT and run_perf.agree([], row) for each in both for row in run_perf.rows(each.stdout))
        judge.say(f"raw_ethernet_bw --run_infinitely {sides}", None if good else "\n".join(each.report() for each in both))


def check_refusals(judge, host):
    mac = ["-B", "02:00:00:00:00:01", "-E", "02:00:00:00:00:02"]
    for words in ([], ["--server"], ["--client", "-B", "02:00:00:00:00:01"], ["--client", *mac, "-K", "5"], ["--client", *mac, "-a"],
                  ["--client", *mac, "-G"], ["--client", *mac, "-S", "1"], ["--client", *mac, "-s", "64", *IPV6.split(), "-K", "1", "-k", "1", "--tcp"]):
        run = own_programs.run(host, "o", "perf", ["raw_ethernet_bw", *words], seconds=20, user=[])
        judge.say(f"raw_ethernet_bw {' '.join(words)} is refused", None if run.status == 1 and run.stderr and not run.stdout else run.report())
    run = own_programs.run(host, "o", "perf", ["raw_ethernet_bw", "--client", *mac], seconds=20)
    judge.say("an ordinary user learns what is missing", None if run.status == 1 and "CAP_NET_RAW" in run.stderr else run.report())


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--test", choices=LINES, action="append", help="only this test; may be given again")
    options = harness.begin(parser, "ip", "setpriv", *LINES)

    judge = harness.Judge()
    with harness.Hosts(options.build) as hosts:
        server, client = hosts.two()
        for test in options.test or LINES:
            for line in LINES[test]:
                check(judge, server, client, test, line, run_perf.PAIRS)
            for line in OWN_LINES[test]:
                check(judge, server, client, test, line, ["oo"])
        if not options.test:
            check_json(judge, server, client)
            check_forwarding(judge, server, client)
            check_endless(judge, server, client)
            check_refusals(judge, server)
    judge.exit()


if __name__ == "__main__":
    sys.exit(main())
