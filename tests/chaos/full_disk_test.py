#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""full_disk_test.py BUILD [TEST...]: the file system of the agent's directory is full, has no free inodes, or is read-only; or
programs may not write files (ulimit -f). Programs must work nevertheless, since only the view of /sys needs these files.
Failed writes must be logged. Once there is space, everything must be complete."""

import pathlib
import subprocess
import sys
import unittest

import talkers
from talkers import harness

BUILD = None
ROUNDS = 300
HOME = f"/run/user/{harness.NOBODY}"


class SmallHost(harness.Host):
    """A host whose /run is a small file system that contains only a user's folder."""

    def __init__(self, host, options):
        super().__init__(host.hosts, host.namespace, host.ipv4, host.ipv6, host.netdev)
        script = f"mount -t tmpfs -o {options} none /run && mkdir -p {HOME} && chown {harness.NOBODY} {HOME} && chmod 700 {HOME} && echo ready; exec sleep 1000"
        self.holder = host.start(["unshare", "--mount", "sh", "-c", script], user=[])
        if not harness.poll_until(lambda: "ready" in self.holder.output or not self.holder.running(), 10):
            raise RuntimeError(self.holder.output)

    def enter(self):
        return ["nsenter", "--target", self.holder.pid, "--mount", "--net"]

    def shell(self, command, check=True):
        return harness.sh(*self.enter(), "sh", "-c", command, check=check)

    def fill(self):
        self.shell("cat /dev/zero > /run/ballast", check=False)
        self.shell(f"df --output=avail /run | tail -1 | grep -qx ' *0'")

    def make_room(self):
        self.shell("rm /run/ballast")

    def shows_the_device(self):
        """Whether the device's folder is complete; ibdev is the file written last."""
        files = self.shell(f"find {HOME} -path '*/infiniband/rxe_lo/*' -type f | wc -l; find {HOME} -path '*/infiniband_verbs/*' -name ibdev", check=False)
        return files.split()[0] != "0" and "ibdev" in files


class FullDisk(unittest.TestCase):
    def setUp(self):
        self.hosts = harness.Hosts(BUILD)
        self.hosts.__enter__()
        self.addCleanup(self.hosts.__exit__)
        self.all_verbs = pathlib.Path(BUILD).resolve() / "tests" / "all_verbs"

    def small(self, options="size=2m"):
        return SmallHost(self.hosts.one(), options)

    def assert_all_verbs_work(self, host):
        status, output = host.run(self.all_verbs, host.ipv4)
        self.assertEqual(status, 0, output)

    def assert_programs_talk(self, host):
        both = talkers.Talkers(BUILD, host, rounds=ROUNDS)
        self.assertEqual(both.end(30), (0, 0), both.output())

    def test_with_room_the_device_is_shown(self):
        """Shows that shows_the_device() can succeed, since the other tests expect it to fail."""
        host = self.small()
        self.assert_programs_talk(host)
        self.assertTrue(host.shows_the_device(), host.shell("find /run"))

    def test_an_agent_that_starts_on_a_full_disk_serves(self):
        host = self.small()
        host.fill()
        self.assert_all_verbs_work(host)
        self.assert_programs_talk(host)
        self.assertFalse(host.shows_the_device())
        host.make_room()
        self.assertTrue(harness.poll_until(host.shows_the_device, 20, 0.2), host.shell("find /run"))

    def test_an_agent_says_that_its_disk_is_full(self):
        host = self.small()
        host.fill()
        agent = host.start([self.hosts.build.program.parent / "verbena-agent", "--foreground"],
                           environment={"VERBENA_LOG": "warning"})
        self.assertTrue(harness.poll_until(lambda: "No space left on device" in agent.output, 10), agent.output)
        self.assert_programs_talk(host)

    def test_without_inodes(self):
        host = self.small("nr_inodes=12")
        self.assert_all_verbs_work(host)
        self.assert_programs_talk(host)
        none = self.small("nr_inodes=4")
        none.shell("i=0; while mkdir /run/ballast$i; do i=$((i+1)); done", check=False)
        self.assert_programs_talk(none)

    def test_where_nothing_can_be_written(self):
        host = self.small()
        host.shell("mount -o remount,ro /run")
        self.assert_all_verbs_work(host)
        self.assert_programs_talk(host)

    def test_a_disk_that_fills_while_programs_talk(self):
        host = self.small()
        both = talkers.Talkers(BUILD, host)
        self.assertTrue(both.until_up(), both.output())
        host.fill()
        harness.sh("ip", "-n", host.namespace, "addr", "add", "10.77.0.1/24", "dev", "lo")  # this changes the device's folder
        self.assert_all_verbs_work(host)
        self.assertTrue(all(one.running() for one in both.both), both.output())
        gids = [gid["gid"] for link in host.status()["links"] for gid in link["gids"]]
        self.assertIn("::ffff:10.77.0.1", gids)
        host.make_room()
        shown = f"grep -rl 0a4d:0001 {HOME} | wc -l"
        self.assertTrue(harness.poll_until(lambda: int(host.shell(shown)) > 0, 20, 0.2), host.shell("find /run"))
        both.kill()

    def limited(self, host, how, *command, seconds=30):
        """Runs a command with a limit on the size of files: (exit status, output). The output goes through a pipe, which has
        no limit."""
        script = f'{{ ulimit {how} 0; ulimit -c 0; "$@" 2>&1; echo "ended $?"; }} | cat'
        process = host.start(["sh", "-c", script, "sh", *command])
        self.assertIsNotNone(process.wait(seconds), process.output)
        output, _, status = process.output.rpartition("ended ")
        return int(status), output

    def test_programs_that_may_write_no_files_work_or_hear_of_it(self):
        for how in ("-Sf", "-Hf"):
            with self.subTest(how=how):
                host = self.hosts.one()
                # A limited program may start an agent that copes with the limit, or report that there is none.
                status, output = self.limited(host, how, self.hosts.build.program, "run", self.all_verbs, host.ipv4)
                self.assertIn(status, (0, 3), output)
                # Other programs must be unaffected.
                self.assert_all_verbs_work(host)
                self.assert_programs_talk(host)
                status, output = self.limited(host, how, self.hosts.build.program, "run", self.all_verbs, host.ipv4)
                self.assertIn(status, (0, 3), output)

    def test_a_capture_says_that_it_cannot_be_written(self):
        host = self.hosts.one()
        both = talkers.Talkers(BUILD, host)
        self.assertTrue(both.until_up(), both.output())
        status, output = host.command("capture", "--seconds", "2", "/dev/full", seconds=20)
        self.assertNotIn(status, (0, None), output)
        self.assertIn("No space left", output)
        self.assertTrue(all(one.running() for one in both.both), both.output())
        both.kill()


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    harness.require_root()
    harness.require_programs("ip", "setpriv", "unshare", "nsenter")
    unittest.main()
