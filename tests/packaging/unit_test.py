#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unit_test.py UNIT [TEST...]: the agent's systemd unit allows what the agent needs, and little more."""

import configparser
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

UNIT = None
# The exposure level that systemd-analyze computes, of ten. The rest is there because the agent runs as root, sees other
# processes, and has the network.
MAX_EXPOSED = 30  # tenths

# System calls that the agent needs: sockets with descriptors and credentials, netlink, memfds and their seals, pidfds, timers,
# its directory, and takeover by another agent.
NEEDED = """
    accept4 access arch_prctl bind brk cachestat chmod clock_gettime clone clone3 close connect epoll_create1 epoll_ctl epoll_wait
    eventfd2 execve exit_group fallocate fchmod fcntl flock fstat ftruncate futex getdents64 geteuid getpid getrandom
    getsockname getsockopt getuid inotify_init1 ioctl kill listen lseek memfd_create mkdir mmap mprotect munmap
    newfstatat open openat pidfd_open pipe2 poll prctl pread64 prlimit64 pwrite64 read readlink recvfrom recvmmsg
    recvmsg rename rmdir rseq rt_sigaction rt_sigprocmask sched_setaffinity sched_setscheduler sendmmsg sendmsg sendto
    set_robust_list set_tid_address setsockopt shutdown signalfd4 socket socketpair symlink timerfd_create
    timerfd_settime umask uname unlink unlinkat wait4 write writev
""".split()


def known_calls(name):
    """The system calls in a set such as @system-service."""
    ran = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    calls = set()
    for word in re.findall(r"^    ([@\w-]+)$", ran.stdout, re.MULTILINE):
        calls |= known_calls(word) if word.startswith("@") else {word}
    return calls


def allowed_calls(filters):
    """The system calls that SystemCallFilter= lines allow. The first line lists allowed calls; @default is always allowed."""
    allowed = set()
    for line in filters:
        names = line.lstrip("~").split()
        calls = set().union(*(known_calls(one) if one.startswith("@") else {one} for one in names))
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    return allowed | known_calls("@default")


class Unit(unittest.TestCase):
    def test_exposure_is_small(self):
        ran = subprocess.run(["systemd-analyze", "security", "--offline=true", f"--threshold={MAX_EXPOSED}", str(UNIT)],
                             capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout[-400:] + ran.stderr)

    def test_systemd_understands_all_of_it(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder, "verbena-agent.service")
            # The program need not be installed on the machine that runs the tests.
            unit.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(encoding="utf-8")), encoding="utf-8")
            ran = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
            told = [line for line in ran.stderr.splitlines() if "verbena-agent" in line]
            self.assertEqual((ran.returncode, told), (0, []), ran.stderr)

    def test_calls_that_the_agent_needs_are_allowed(self):
        lines = UNIT.read_text(encoding="utf-8").splitlines()
        filters = [line.split("=", 1)[1] for line in lines if line.startswith("SystemCallFilter=")]
        self.assertTrue(filters)
        self.assertEqual(sorted(set(NEEDED) - allowed_calls(filters)), [])

    def test_what_ends_one_call_does_not_end_the_agent(self):
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.optionxform = str
        parser.read(UNIT)
        self.assertEqual(parser["Service"]["SystemCallErrorNumber"], "EPERM")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if not shutil.which("systemd-analyze"):
        print("skipped: systemd-analyze is not there")
        sys.exit(77)
    UNIT = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
