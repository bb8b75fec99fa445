#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""system_test.py VERBENA: `verbena system on` refuses an installation that users other than root can change.

Needs root, for a mount namespace with its own /opt and /etc/ld.so.conf.d, in which ldconfig does nothing."""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

VERBENA = None
SKIPPED = 77
OTHER = 3999999995
TOP = pathlib.Path("/opt/verbena")
CONF = pathlib.Path("/etc/ld.so.conf.d/00-verbena.conf")


def system(word):
    return subprocess.run([TOP / "bin" / "verbena", "system", word], capture_output=True, text=True, timeout=30, check=False,
                          env={**os.environ, "PATH": f"{TOP}/tools:{os.environ['PATH']}"})


def put(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class On(unittest.TestCase):
    def setUp(self):
        # A copy of the installation. The libraries are only checked, so they may have any content.
        shutil.rmtree(TOP, ignore_errors=True)
        TOP.parent.chmod(0o755)
        os.chown(TOP.parent, 0, 0)
        for name in ("CMakeCache.txt", "lib/libibverbs.so.1.0", "lib/libverbena-sys.so", "lib/libverbena-memory.so",
                     "lib/libibverbs/libmore-rdmav34.so", "lib/bin/verbena-rdma-netlink", "bin/verbena-agent", "bin/rdma",
                     "programs/ibv_devinfo"):
            put(TOP / name)
        (TOP / "lib/libibverbs.so.1").symlink_to("libibverbs.so.1.0")
        shutil.copy(VERBENA, TOP / "bin" / "verbena")
        put(TOP / "tools/ldconfig", "#!/bin/sh\n")
        CONF.unlink(missing_ok=True)

    def assert_refused(self, name):
        ran = system("on")
        self.assertEqual(ran.returncode, 1, f"{name}: {ran.stdout}{ran.stderr}")
        self.assertIn(f"'{name}'", ran.stderr)
        self.assertFalse(CONF.exists())

    def test_takes_what_only_root_can_change(self):
        ran = system("on")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn(f"{TOP}/lib\n", CONF.read_text())

    def test_refuses_each_file_that_others_may_write_and_each_that_they_own(self):
        for file in [path for path in TOP.rglob("*") if path.is_file() and not path.is_symlink()]:
            if file.parent.name == "tools" or file.name in ("CMakeCache.txt", "verbena"):
                continue
            with self.subTest(file):
                file.chmod(0o775)
                self.assert_refused(file)
                file.chmod(0o755)
                os.chown(file, OTHER, OTHER)
                self.assert_refused(file)
                os.chown(file, 0, 0)

    def test_refuses_each_folder_that_others_may_write_or_own(self):
        for folder in (TOP.parent, TOP, TOP / "lib", TOP / "bin", TOP / "programs", TOP / "lib/libibverbs"):
            with self.subTest(folder):
                for mode in (0o775, 0o757, 0o1777):
                    folder.chmod(mode)
                    self.assert_refused(folder)
                folder.chmod(0o755)
                os.chown(folder, OTHER, OTHER)
                self.assert_refused(folder)
                os.chown(folder, 0, 0)

    def test_follows_links_out_of_the_installation(self):
        theirs = TOP.parent / "theirs"
        put(theirs / "lib.so")
        theirs.chmod(0o1777)
        for link, target in ((TOP / "lib/libmore.so.1", theirs / "lib.so"), (TOP / "lib/glibc-hwcaps", theirs)):
            link.symlink_to(target)
            self.assert_refused(theirs)
            link.unlink()
        self.assertEqual(system("on").returncode, 0)

    def test_refuses_the_agent_that_the_libraries_would_find_first(self):
        agent = TOP / "libexec/verbena/verbena-agent"
        put(agent)
        os.chown(agent, OTHER, OTHER)
        self.assert_refused(agent)


def main():
    global VERBENA
    if sys.argv[1] != "--inside":
        if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
            print("only root can have a file system of its own")
            sys.exit(SKIPPED)
        os.execvp("unshare", ["unshare", "--mount", sys.executable, __file__, "--inside", *sys.argv[1:]])
    # The mounts may cover the folder of the program.
    VERBENA = f"/proc/self/fd/{os.open(sys.argv.pop(2), os.O_RDONLY)}"
    del sys.argv[1]
    for folder in (TOP.parent, CONF.parent):
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", folder], check=True)
    unittest.main()


if __name__ == "__main__":
    main()
