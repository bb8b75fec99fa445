#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests link_emulator: what happens to the packets between two hosts, as the hosts see it.

    emulator_test.py --build build/release
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "network"))
import harness  # noqa: E402
from links import LINKS  # noqa: E402

ENDPOINT = pathlib.Path(__file__).resolve().parent / "endpoint.py"
PORT = 7000
STREAM_BYTES = 24 << 20


class EmulatorOnly(harness.Build):
    """A build folder of which only link_emulator is used, so that nothing else must be built."""

    def __init__(self, folder):  # pylint: disable=super-init-not-called
        self.folder = pathlib.Path(folder).resolve()

    def close(self):
        pass


class Link:
    """Two hosts joined by an emulated link with the given options."""

    def __init__(self, build, *options):
        self._hosts = harness.Hosts(build)
        self._options = options
        self.counted = None

    def __enter__(self):
        self._hosts.__enter__()
        (self.first, self.second), self._emulator = self._hosts.two_far(self._options, ipv6=False)
        # Permanent neighbour entries avoid ARP packets, which would change the numbers of the other packets from run to run.
        for host, other in ((self.first, self.second), (self.second, self.first)):
            harness.sh("ip", "-n", host.namespace, "neigh", "add", other.ipv4, "lladdr", other.mac(), "dev", "eth0",
                       "nud", "permanent")
        return self

    def __exit__(self, *_):
        self._hosts.__exit__()

    def start(self, host, *words):
        return host.start([sys.executable, ENDPOINT, *words], user=[])

    def serve(self, *words):
        """Starts an endpoint on the second host."""
        process = self.start(self.second, *words)
        if not harness.poll_until(lambda: "ready" in process.output or not process.running(), 20):
            raise RuntimeError(process.output)
        return process

    def said(self, process, seconds=120):
        if process.wait(seconds) != 0:
            raise RuntimeError(f"{process.command}\n{process.output}")
        lines = [line for line in process.output.splitlines() if line != "ready"]
        return json.loads(lines[-1]) if lines else {}

    def datagrams(self, count, *options):
        """Sends datagrams from the first host; returns the second host's report."""
        receiving = self.serve("receive", PORT)
        self.said(self.start(self.first, "send", self.second.ipv4, PORT, count, *options))
        return self.said(receiving)

    def stream(self):
        """Sends a stream; returns the reports of both ends."""
        taking = self.serve("take", PORT)
        sent = self.said(self.start(self.first, "stream", self.second.ipv4, PORT, STREAM_BYTES, 7))
        return sent, self.said(taking)

    def end(self):
        """The link's counters for packets to the second host."""
        return self._emulator.end()["there"]

    def checksum_errors(self):
        """The number of datagrams that the second host dropped because of a wrong checksum."""
        names, values = re.findall(r"(?m)^Udp: (.*)$", harness.sh("ip", "netns", "exec", self.second.namespace, "cat", "/proc/net/snmp"))
        return int(dict(zip(names.split(), values.split()))["InCsumErrors"])


def expect(condition, what):
    """None if the condition holds, else the complaint."""
    return None if condition else str(what)


def a_delay_is_there_in_both_directions(build):
    with Link(build, "--delay", 50) as link:
        link.serve("echo", PORT)
        seconds = link.said(link.start(link.first, "ask", link.second.ipv4, PORT))["seconds"]
    return expect(0.1 <= seconds < 1, seconds)


def numbers_that_arrive(build, seed, *options):
    with Link(build, "--loss", 0.1, "--one-way", "--seed", seed) as link:
        got = link.datagrams(2000, *options)
        counted = link.end()
    missing = set(range(2000)) - set(got["numbers"])
    wrong = got["damaged"] or len(got["numbers"]) != 2000 - len(missing) or counted["lost"] < len(missing)
    return None if wrong else sorted(missing)


def a_seed_loses_the_same_packets_again(build):
    first = numbers_that_arrive(build, 5)
    return expect(first and 120 < len(first) < 290 and first == numbers_that_arrive(build, 5), first)


def another_seed_loses_others(build):
    return expect(numbers_that_arrive(build, 5) != numbers_that_arrive(build, 6), "the same ones")


def of_datagrams_sent_together_each_is_lost_for_itself(build):
    return expect(numbers_that_arrive(build, 5, "--together", 50) == numbers_that_arrive(build, 5), "others")


def a_stream_arrives_intact_whatever_befalls_it(build):
    link_options = ["--delay", 1, "--loss", 0.01, "--duplicate", 0.01, "--late", 0.01, "--corrupt", 0.01]
    with Link(build, *link_options) as link:
        sent, came = link.stream()
        counted = link.end()
    harmed = all(counted[what] > 0 for what in ("lost", "duplicated", "late", "corrupted"))
    return expect(sent["digest"] == came["digest"] and harmed, (sent, came, counted))


def a_damaged_datagram_is_not_delivered(build):
    with Link(build, "--corrupt", 0.2, "--one-way") as link:
        got = link.datagrams(3000)
        errors = link.checksum_errors()
        counted = link.end()
    # If the flipped bit was in the IP header, no datagram was seen at all.
    good = got["damaged"] == 0 and len(got["numbers"]) <= 3000 - errors and 400 < errors <= counted["corrupted"]
    return expect(good and len(set(got["numbers"])) == len(got["numbers"]), (len(got["numbers"]), got["damaged"], errors, counted))


def all_come_twice_where_all_are_doubled(build):
    with Link(build, "--duplicate", 1, "--one-way") as link:
        numbers = link.datagrams(500)["numbers"]
    return expect(sorted(numbers) == sorted([*range(500), *range(500)]), len(numbers))


def early_packets_change_the_order(build):
    with Link(build, "--delay", 20, "--early", 0.1, "--one-way") as link:
        numbers = link.datagrams(500)["numbers"]
    return expect(sorted(numbers) == list(range(500)) != numbers, numbers[:50])


def a_rate_is_not_exceeded(build):
    with Link(build, "--rate", 200, "--queue", 100000) as link:
        sent, came = link.stream()
        counted = link.end()
    least = STREAM_BYTES * 8 / 200e6
    good = sent["digest"] == came["digest"] and sent["seconds"] >= least and 50000 < counted["longest_queue_bytes"] <= 100000
    return expect(good, (least, sent, counted))


def a_full_queue_loses(build):
    with Link(build, "--rate", 1, "--queue", 20000, "--one-way") as link:
        numbers = link.datagrams(100)["numbers"]
        counted = link.end()
    return expect(numbers[:10] == list(range(10)) and len(numbers) < 60 and counted["overflowed"] > 40, (numbers, counted))


def marked(build, tos):
    with Link(build, "--rate", 50, "--queue", 10000000, "--mark-above", 20000, "--one-way") as link:
        got = link.datagrams(200, "--tos", tos)
    return len(got["numbers"]), got["marked"], got["damaged"]


def a_long_queue_marks_what_is_ecn_capable(build):
    got = marked(build, 2)
    return expect(got[0] == 200 and 100 < got[1] < 200 and got[2] == 0, got)


def nothing_else_is_marked(build):
    got = marked(build, 0)
    return expect(got == (200, 0, 0), got)


def a_sender_is_told_of_a_smaller_mtu(build):
    with Link(build, "--mtu", 1300) as link:
        told = link.said(link.start(link.first, "path_mtu", link.second.ipv4, 1400))["mtu"]
        sent, came = link.stream()
        counted = link.end()
    return expect(told == 1300 and sent["digest"] == came["digest"] and counted["too_large"] > 0, (told, counted))


def a_silent_link_does_not_tell(build):
    with Link(build, "--mtu", 1300, "--silent-mtu") as link:
        got = link.datagrams(20, "--bytes", 1400)["numbers"]
        counted = link.end()
    return expect(got == [] and counted["too_large"] >= 20, (got, counted))


def what_makes_no_sense_is_refused(build):
    program = build.folder / "tests" / "link_emulator"
    for words in (["a"], ["a", "b", "--loss", "2"], ["a", "b", "--delay", "-1"], ["a", "b", "--speed", "9"],
                  ["a" * 40, "b"], ["a/b", "c"]):
        ran = subprocess.run([program, *words], capture_output=True, text=True, timeout=20, check=False)
        if ran.returncode == 0 or not ran.stderr + ran.stdout or "ready" in ran.stdout:
            return f"{words}: {ran}"
    return None


def the_links_of_the_benchmark_are_understood(build):
    """The options of the benchmark's links are valid: each start may fail only because of the device name."""
    program = build.folder / "tests" / "link_emulator"
    for link in LINKS:
        ran = subprocess.run([program, "a/b", "c", *link.options.split()], capture_output=True, text=True, timeout=20, check=False)
        if "a/b: " not in ran.stderr:
            return f"{link.name}: {ran}"
    return None


CASES = [a_delay_is_there_in_both_directions, a_seed_loses_the_same_packets_again, another_seed_loses_others,
         of_datagrams_sent_together_each_is_lost_for_itself, a_stream_arrives_intact_whatever_befalls_it,
         a_damaged_datagram_is_not_delivered, all_come_twice_where_all_are_doubled, early_packets_change_the_order,
         a_rate_is_not_exceeded, a_full_queue_loses, a_long_queue_marks_what_is_ecn_capable, nothing_else_is_marked,
         a_sender_is_told_of_a_smaller_mtu, a_silent_link_does_not_tell, what_makes_no_sense_is_refused,
         the_links_of_the_benchmark_are_understood]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--case", action="append", help="run only cases whose name contains this")
    options = parser.parse_args()
    harness.require_root()
    harness.require_tap()
    harness.require_programs("ip")
    build = EmulatorOnly(options.build)
    judge = harness.Judge()
    for case in CASES:
        if not options.case or any(word in case.__name__ for word in options.case):
            judge.say(case.__name__.replace("_", " "), case(build))
    judge.exit()


if __name__ == "__main__":
    main()
