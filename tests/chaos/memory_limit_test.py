#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memory_limit_test.py BUILD [TEST...]: a control group runs out of memory, like a container with a limit, and the kernel
kills the agent or a program in the middle of traffic. All other processes must continue. Skipped if no control group has a
memory controller."""

import os
import pathlib
import sys
import unittest

import talkers
from talkers import harness

BUILD = None
RECLAIM_SECONDS = 5
MIB = 1 << 20


class Group:
    """A control group with a memory limit and no swap; supports both versions of cgroups(7)."""

    count = 0

    def __init__(self, limit):
        root, self.is_v2 = self.controller()
        Group.count += 1
        self.folder = root / f"verbena-{os.getpid()}-{Group.count}"
        self.folder.mkdir()
        limits = {"memory.max": limit, "memory.swap.max": 0} if self.is_v2 else {"memory.limit_in_bytes": limit, "memory.swappiness": 0}
        for name, value in limits.items():
            self.write(name, value)

    @staticmethod
    def controller():
        """(folder for new groups, whether it is cgroup v2); (None, False) if there is no memory controller."""
        for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            before, after = line.split(" - ")
            kind, _, options = after.split(" ", 2)
            root = pathlib.Path(before.split()[4])
            if kind == "cgroup" and "memory" in options.split(","):
                return root, False
            if kind == "cgroup2" and "memory" in (root / "cgroup.subtree_control").read_text(encoding="utf-8").split():
                return root, True
        return None, False

    def write(self, name, value):
        (self.folder / name).write_text(str(value), encoding="ascii")

    def take(self, pid):
        """Moves the process into the group, so that its new memory counts here, and makes it the first to be killed."""
        pathlib.Path(f"/proc/{pid}/oom_score_adj").write_text("1000", encoding="ascii")
        self.write("cgroup.procs", pid)

    def close(self):
        harness.poll_until(lambda: not (self.folder / "cgroup.procs").read_text(encoding="ascii"), 10)
        self.folder.rmdir()


class MemoryLimit(unittest.TestCase):
    def setUp(self):
        self.hosts = harness.Hosts(BUILD)
        self.hosts.__enter__()
        self.host = self.hosts.one()

    def tearDown(self):
        self.hosts.__exit__()

    def group(self, limit):
        group = Group(limit)
        self.addCleanup(group.close)
        return group

    def use_up(self, group):
        """Starts a process in the group that allocates memory until it is killed itself, as the last one."""
        script = f"until grep -q {group.folder.name} /proc/self/cgroup; do sleep 0.02; done; exec tail /dev/zero"
        hog = self.host.start(["sh", "-c", script], user=[])
        group.write("cgroup.procs", hog.pid)
        self.addCleanup(hog.kill)

    def assert_programs_talk(self):
        both = talkers.Talkers(BUILD, self.host, rounds=300)
        self.assertEqual(both.end(30), (0, 0), both.output())

    def test_an_agent_that_is_killed_for_its_memory_is_followed_by_another(self):
        self.host.start_agent()
        both = talkers.Talkers(BUILD, self.host)
        self.assertTrue(both.until_up(), both.output())
        group = self.group(4 * MIB)
        agents = self.host.agents()  # the agent and its standby
        for agent in agents:
            group.take(agent)
        self.use_up(group)
        killed = harness.poll_until(lambda: not set(agents) & set(self.host.agents()), 20)
        self.assertTrue(killed, "the agent was not killed")
        self.assert_programs_talk()
        self.assertTrue(all(one.running() for one in both.both), both.output())
        both.kill()

    def test_a_program_that_is_killed_for_its_memory_ends_alone(self):
        others = talkers.Talkers(BUILD, self.host)
        self.assertTrue(others.until_up(), others.output())
        group = self.group(64 * MIB)
        both = talkers.Talkers(BUILD, self.host)
        self.assertTrue(both.until_up(), both.output())
        group.take(both.server.pid)
        self.use_up(group)
        self.assertEqual(both.server.wait(20), -9, both.output())
        self.assertEqual(both.client.wait(20), talkers.LOST, both.output())
        self.assertTrue(harness.poll_until(lambda: not talkers.is_listed(self.host, both.server.pid), RECLAIM_SECONDS))
        self.assert_programs_talk()
        self.assertTrue(all(one.running() for one in others.both), others.output())
        others.kill()


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    harness.require_root()
    harness.require_programs("ip", "setpriv")
    if Group.controller()[0] is None:
        harness.skip("there is no control group with a memory controller")
    unittest.main()
