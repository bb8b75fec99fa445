#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clock_test.py BUILD [TEST...]: programs talk while the wall clock (CLOCK_REALTIME) steps by hours. Others run with monotonic
clocks that are days apart, as in migrated containers (time namespaces); so does their agent."""

import os
import signal
import subprocess
import sys
import unittest

import talkers
from talkers import harness

BUILD = None
ROUNDS = 1500
DAYS = 1000000  # seconds


def in_another_time(offset):
    """Command prefix that starts a program in its own time namespace, with CLOCK_MONOTONIC and CLOCK_BOOTTIME `offset` seconds
    ahead. Needs root."""
    return ("unshare", "--time", "--monotonic", str(offset), "--boottime", str(offset), "--fork", "--kill-child")


def can_be_in_another_time():
    return subprocess.run([*in_another_time(1), "true"], capture_output=True, check=False).returncode == 0


class Clock(unittest.TestCase):
    def setUp(self):
        self.hosts = harness.Hosts(BUILD)
        self.hosts.__enter__()
        self.addCleanup(self.hosts.__exit__)
        self.host = self.hosts.one()

    def assert_all_rounds(self, both):
        self.assertEqual(both.end(60), (0, 0), both.output())


class Steps(Clock):
    """The programs and their agent read a wall clock that steps at each reading."""

    ROUTES = ({}, {"VERBENA_LOCAL": "off"})

    def test_traffic_and_agents_go_by_no_clock_that_steps(self):
        stepping = talkers.preload(BUILD, "clock_steps")
        # Started directly: an agent that a program starts does not inherit the program's preloads.
        agent = self.host.start([*stepping, self.hosts.build.program.parent / "verbena-agent", "--foreground"],
                                environment={"ASAN_OPTIONS": "verify_asan_link_order=0"})
        self.assertTrue(harness.poll_until(lambda: self.host.agents() or not agent.running(), 10), agent.output)
        for route in self.ROUTES:
            with self.subTest(route=route):
                both = talkers.Talkers(BUILD, self.host, rounds=ROUNDS, wrap=(stepping, stepping), environments=(route, route))
                self.assert_all_rounds(both)
        self.assertEqual(self.host.agents(), [agent.pid])

    def test_a_peer_that_is_gone_is_given_up_as_soon(self):
        stepping = talkers.preload(BUILD, "clock_steps")
        wire = {"VERBENA_LOCAL": "off"}
        both = talkers.Talkers(BUILD, self.host, wrap=(stepping, stepping), environments=(wire, wire))
        self.assertTrue(both.until_up(), both.output())
        os.kill(both.server.pid, signal.SIGKILL)
        self.assertEqual(both.client.wait(15), talkers.LOST, both.output())


@unittest.skipUnless(can_be_in_another_time(), "no time namespaces here")
class Apart(Clock):
    """Each program runs in its own time namespace."""

    ROUTES = ({}, {"VERBENA_LOCAL": "off"})

    def starts(self, *offsets):
        """Functions that start a program as an ordinary user, each with clocks that are one of these offsets ahead."""
        def at(offset):
            def start(*arguments, environment=None):
                words = [*(in_another_time(offset) if offset else ()), *harness.ordinary_user(), self.hosts.build.program]
                return self.host.start([*words, *arguments], user=[], environment=environment)
            return start
        return [at(offset) for offset in offsets]

    def slots(self):
        """{pid: slots} of all processes in the agent's status."""
        return {process["pid"]: process["slots"] for process in self.host.status()["processes"]}

    def test_two_programs_talk_whose_clocks_are_days_apart(self):
        for route in self.ROUTES:
            with self.subTest(route=route):
                both = talkers.Talkers(BUILD, self.host, rounds=ROUNDS, starts=self.starts(DAYS, 2 * DAYS), environments=(route, route))
                self.assert_all_rounds(both)

    def test_an_agent_of_another_time_takes_over_programs_that_run(self):
        """/proc shows start times in the agent's own clock. It must convert them to match its predecessor's record."""
        both = talkers.Talkers(BUILD, self.host, starts=self.starts(0, DAYS))
        self.assertTrue(both.until_up(), both.output())
        before = self.slots()
        self.assertEqual(len(before), 2)
        for offset in (5 * DAYS, 0):
            for agent in self.host.agents():
                os.kill(agent, signal.SIGKILL)
            newcomer = self.starts(offset)[0]("run", "ibv_devinfo", "-l")  # starts an agent
            self.assertEqual(newcomer.wait(20), 0, newcomer.output)
            found = harness.poll_until(lambda: {pid: slots for pid, slots in self.slots().items() if pid in before} == before, 5, 0.05)
            self.assertTrue(found, f"{before} is now {self.slots()}")
        self.assertTrue(all(one.running() for one in both.both), both.output())
        third = talkers.Talkers(BUILD, self.host, rounds=100)
        self.assert_all_rounds(third)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    harness.require_root()
    harness.require_programs("ip", "setpriv", "unshare")
    unittest.main()
