#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""abort_test.py BUILD [TEST...]: one thread after another of a program calls abort(3) while the program talks to a peer.
Application threads get a signal; library threads call it themselves. The peer must get an error, the agent must reclaim
everything, and no file may be left. The same holds if a handler of SIGABRT ends the process by exit(3)."""

import ctypes
import os
import signal
import sys
import time
import unittest

import talkers
from talkers import harness

BUILD = None
RECLAIM_SECONDS = 2.0
EXITED = 7  # status with which the handler of SIGABRT exits
APPLICATION_THREADS = ("main", "talks", "waits", "accepts")
LIBRARY_THREADS = ("verbena-engine", "verbena-rdmacm", "rsocket")
SYS_TGKILL = 234


def abort_in(process, thread):
    """Sends SIGABRT to one thread with tgkill(2), which Python's os module lacks."""
    if thread in LIBRARY_THREADS:
        os.kill(process.pid, signal.SIGUSR2)  # abort_in_thread.c handles it
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(SYS_TGKILL, process.pid, talkers.threads(process.pid)[thread], int(signal.SIGABRT)) != 0:
        raise OSError(ctypes.get_errno(), "tgkill")


class Abort(unittest.TestCase):
    def setUp(self):
        self.hosts = harness.Hosts(BUILD)
        self.hosts.__enter__()
        self.addCleanup(self.hosts.__exit__)
        self.host = self.hosts.one()
        self.folders_before = talkers.namespace_folders(self.host)  # another killed agent may have left folders for the same namespace inode
        talkers.start_short_agent(self.host)

    def abort_each(self, threads, wanted, *options):
        for thread in threads:
            with self.subTest(thread=thread):
                both = talkers.Talkers(BUILD, self.host, "impatient", *options, wrap=(talkers.preload(BUILD, "abort_in_thread"), ()),
                                       environments=({"VERBENA_TEST_ABORT_IN": thread}, {}))
                self.assertTrue(both.until_up(), both.output())
                self.assertIn(thread, talkers.threads(both.server.pid))
                abort_in(both.server, thread)
                self.assertEqual(both.server.wait(5), wanted, both.output())
                since = time.monotonic()
                self.assertTrue(harness.poll_until(lambda: not talkers.is_listed(self.host, both.server.pid), 10),
                                "the agent still lists the dead process")
                self.assertLess(time.monotonic() - since, RECLAIM_SECONDS)
                self.assertEqual(both.client.wait(20), talkers.LOST, both.output())
                both.kill()

    def assert_nothing_left(self):
        self.assertTrue(harness.poll_until(lambda: not self.host.agents(), 30, 0.1), "an agent stays though nothing uses it")
        self.assertEqual(talkers.sockets(self.host), [])
        self.assertEqual(set(talkers.namespace_folders(self.host)) - set(self.folders_before), set())

    def test_the_other_end_notices_whatever_thread_aborts(self):
        self.abort_each(APPLICATION_THREADS + LIBRARY_THREADS, -signal.SIGABRT)
        self.assert_nothing_left()

    def test_a_handler_may_end_the_process_in_any_thread(self):
        self.abort_each(APPLICATION_THREADS + LIBRARY_THREADS, EXITED, "exits")
        self.assert_nothing_left()


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    harness.require_root()
    harness.require_programs("ip", "setpriv")
    unittest.main()
