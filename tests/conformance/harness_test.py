#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the harness with small stand-ins for RDMA programs: it removes everything it made, and a program that hangs or fails
does not count as a success."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import types
import unittest
import unittest.mock

import harness
import matrix

# A server waits for one connection and takes a line; a client sends it. Options, as perftest's: -p PORT [HOST].
PEER = textwrap.dedent("""\
    import socket, sys, time
    port = int(sys.argv[sys.argv.index("-p") + 1])
    how = sys.argv[1]
    rest = sys.argv[sys.argv.index("-p") + 2:]
    if rest:
        s = socket.create_connection((rest[0], port))
        if how == "client-fails": sys.exit(3)
        if how == "client-hangs": time.sleep(600)
        s.sendall(b"x\\n")
        print(" 65536      1000             60.30              58.06              0.000929")
    else:
        l = socket.create_server(("", port))
        if how == "server-fails": sys.exit(4)
        c, _ = l.accept()
        while how == "client-fails": time.sleep(1)
        sys.exit(0 if c.recv(1) == b"x" else 5)
    """)


def namespaces():
    return {line.split()[0] for line in harness.sh("ip", "netns", "list").splitlines()}


def own_namespaces():
    """The namespaces of this process: another test may make its own at the same time."""
    return {name for name in namespaces() if (owner := harness.NAMESPACE.match(name)) and int(owner.group(1)) == os.getpid()}


class FakeBuild:
    """A build folder whose `verbena run` only runs the program."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="verbena-harness-")
        self.folder = pathlib.Path(self._folder.name)
        (self.folder / "bin").mkdir()
        verbena = self.folder / "bin" / "verbena"
        verbena.write_text('#!/bin/sh\nshift\nexec "$@"\n', encoding="utf-8")
        (self.folder / "peer.py").write_text(PEER, encoding="utf-8")
        for path in (self.folder, self.folder / "bin", verbena):
            path.chmod(0o755)

    def peer(self, how):
        return ["/usr/bin/python3", self.folder / "peer.py", how]

    def remove(self):
        self._folder.cleanup()


class Harness(unittest.TestCase):
    def setUp(self):
        self.fake = FakeBuild()
        self.addCleanup(self.fake.remove)

    def pair(self, how, seconds=20):
        with harness.Hosts(self.fake.folder) as hosts:
            server, client = hosts.two()
            return harness.pair(server, client, self.fake.peer(how), seconds=seconds)

    def test_good_pair(self):
        result = self.pair("well")
        self.assertTrue(result.good, result.report())
        self.assertEqual(harness.bandwidth(result.client.output), 58.06)

    def test_failing_client_is_seen_and_its_server_ended(self):
        result = self.pair("client-fails")
        self.assertFalse(result.good)
        self.assertEqual(result.client_status, 3)
        self.assertFalse(result.server.running())

    def test_failing_server_is_seen(self):
        self.assertFalse(self.pair("server-fails").good)

    def test_hanging_client_is_ended_in_time(self):
        began = time.monotonic()
        result = self.pair("client-hangs", seconds=1)
        self.assertIsNone(result.client_status)
        self.assertFalse(result.client.running())
        self.assertLess(time.monotonic() - began, 15)

    def test_programs_run_as_an_ordinary_user_without_privilege(self):
        with harness.Hosts(self.fake.folder) as hosts:
            status, output = hosts.one().run("sh", "-c", "id -u; grep CapEff /proc/self/status")
        self.assertEqual(status, 0)
        self.assertEqual(output.split(), [str(harness.NOBODY), "CapEff:", "0" * 16])

    def test_hosts_reach_each_other_and_leave_nothing(self):
        with harness.Hosts(self.fake.folder) as hosts:
            first, second = hosts.two(mtu=9000)
            self.assertEqual(len(own_namespaces()), 2)
            sleeper = first.start(["sleep", "600"])
            for address in (second.ipv4, second.ipv6):
                code = f"import socket; s = socket.socket(socket.AF_INET{'6' if ':' in address else ''}, " \
                       f"socket.SOCK_DGRAM); s.connect(('{address}', 9)); s.send(b'x')"
                status, output = first.finish(first.start(["/usr/bin/python3", "-c", code]), 10)
                self.assertEqual(status, 0, output)
        self.assertEqual(own_namespaces(), set())
        self.assertFalse(sleeper.running())

    def run_and_signal(self, number):
        """Signals a process that has made two hosts; returns the namespaces left after it has ended."""
        code = ("import harness, sys, time\n"
                f"with harness.Hosts({str(self.fake.folder)!r}) as hosts:\n"
                "    print(*[host.namespace for host in hosts.two()], flush=True)\n"
                "    time.sleep(600)\n")
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                              cwd=pathlib.Path(__file__).parent) as process:
            made = set(process.stdout.readline().split())
            self.assertEqual(len(made & namespaces()), 2)
            process.send_signal(number)
            process.wait(30)
        return made & namespaces()

    def test_a_signal_leaves_nothing(self):
        self.assertEqual(self.run_and_signal(signal.SIGTERM), set())

    def test_what_a_killed_run_left_is_removed_by_the_next(self):
        left = self.run_and_signal(signal.SIGKILL)
        self.assertEqual(len(left), 2)
        with harness.Hosts(self.fake.folder):
            self.assertEqual(left & namespaces(), set())

    def test_the_route_is_in_the_environment_of_the_programs(self):
        for route, said in (("local", "unset"), ("wire", "off")):
            # Our own environment must not reach the programs.
            with unittest.mock.patch.dict(os.environ, {"VERBENA_LOCAL": "ours"}), \
                    harness.Hosts(self.fake.folder, route) as hosts:
                status, output = hosts.one().run("sh", "-c", "echo ${VERBENA_LOCAL-unset}")
            self.assertEqual((status, output.strip()), (0, said))

    def test_case_complaints(self):
        case = matrix.rate("ib_write_bw")
        result = self.pair("well")
        self.assertIsNone(case.complaint(result))
        self.assertIn("no figure", matrix.delay("ib_write_lat").complaint(result))
        self.assertIn("iters in", matrix.pingpong("ibv_rc_pingpong").complaint(result))


class Terminals(unittest.TestCase):
    """Which programs get a terminal as input."""

    def runs(self, name):
        process = harness.Process(["sh", "-c", "test -t 0 && echo terminal", name])
        self.addCleanup(process.kill)
        process.wait(10)
        return process.output

    def test_ucx_perftest_has_a_terminal(self):
        self.assertEqual(self.runs("ucx_perftest"), "terminal\n")

    def test_other_programs_have_none(self):
        self.assertEqual(self.runs("ib_write_bw"), "")


class DisturbedClock(unittest.TestCase):
    """perftest's complaint about the processor clock makes both ends run again, at most four times."""

    def runs(self, outputs):
        remaining = iter(outputs)
        result = harness.repeats_if_clock_disturbed(str)(lambda: next(remaining))()
        return result, len(outputs) - len(list(remaining))

    def test_an_undisturbed_run_is_not_repeated(self):
        self.assertEqual(self.runs(["fails", "good"]), ("fails", 1))

    def test_runs_are_repeated_until_one_is_undisturbed(self):
        self.assertEqual(self.runs(["Correlation coefficient r^2: 0.86 < 0.9", "good", "good"]), ("good", 2))

    def test_the_fifth_run_is_the_last(self):
        self.assertEqual(self.runs(["Correlation coefficient r^2: 0.8 < 0.9"] * 6), ("Correlation coefficient r^2: 0.8 < 0.9", 5))


class Shares(unittest.TestCase):
    def shares(self, *arguments):
        cases = [types.SimpleNamespace(program=program, number=number) for program in "ab" for number in range(48)]
        return [f"{case.program}{case.number}" for case in harness.share_of(cases, *arguments)]

    def test_without_a_share_all(self):
        self.assertEqual(len(self.shares("")), 96)

    def test_each_share_has_the_first_of_each_program_and_all_shares_have_all(self):
        shares = [self.shares(f"{part}/4") for part in range(4)]
        self.assertEqual({case for share in shares for case in share}, set(self.shares("")))
        for share in shares:
            self.assertLessEqual({"a0", "b0"}, set(share))
            self.assertLessEqual(len(share), 26)

    def test_one_of_four_of_a_share_is_a_part_of_it_and_further_numbers_give_the_others(self):
        found = set()
        for part in range(16):
            smaller = self.shares(f"{part}/4", 4)
            self.assertLessEqual(set(smaller), set(self.shares(f"{part}/4")))
            self.assertLessEqual(len(smaller), 8)
            found |= set(smaller)
        self.assertEqual(found, set(self.shares("")))

    def test_one_of_four_of_all(self):
        self.assertEqual(len(self.shares("", 4)), 24)


class Figures(unittest.TestCase):
    """Parses output of perftest 4.5 and ibv_rc_pingpong 44."""

    def test_bandwidth(self):
        text = (" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
                " 2          60               0.30               0.21               0.109227\n"
                " 65536      60               601.30             580.06  \t\t   0.009281\n" + "-" * 87 + "\n")
        self.assertEqual(harness.bandwidth(text), 580.06)
        self.assertIsNone(harness.bandwidth("Failed status 12"))

    def test_latency(self):
        text = (" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
                "99% percentile[usec]   99.9% percentile[usec] \n"
                " 2       1000          2.45           30.10        2.61     \t       2.66        \t0.42   "
                "\t\t3.20    \t\t30.10  \n")
        self.assertEqual(harness.latency(text), 2.61)
        self.assertEqual(harness.latency(text.replace("0.42", "-nan")), 2.61)

    def test_round_trip(self):
        self.assertEqual(harness.round_trip("8192000 bytes in 0.16 seconds = 422.52 Mbit/sec\n"
                                            "1000 iters in 0.16 seconds = 155.11 usec/iter\n"), 155.11)


if __name__ == "__main__":
    harness.require_root()
    harness.require_programs("ip", "setpriv")
    unittest.main()
