#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make-root takes the mirror from apt's configuration, and reports if apt has none. apt-get and debootstrap are replaced by
stand-ins."""

import os
import pathlib
import subprocess
import tempfile
import unittest

MAKE_ROOT = pathlib.Path(__file__).resolve().parent / "make-root"


class MakeRoot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="verbena-make-root-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()
        self.program("id", "echo 0")
        self.program("debootstrap", f'echo "$@" >{self.folder}/arguments; mkdir "$4"')

    def program(self, name, script):
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def make_root(self):
        environment = dict(os.environ, PATH=f"{self.folder}/bin:{os.environ['PATH']}")
        return subprocess.run([MAKE_ROOT, "trixie", self.folder / "roots"], env=environment, capture_output=True, text=True,
                              timeout=30, check=False)

    def test_uses_the_mirror_of_apt(self):
        self.program("apt-get", "echo http://mirror.invalid/debian; echo http://other.invalid/debian")
        ran = self.make_root()
        self.assertEqual(ran.returncode, 0, ran.stderr)
        arguments = (self.folder / "arguments").read_text(encoding="utf-8").split()
        self.assertEqual(arguments[-1], "http://mirror.invalid/debian")
        self.assertTrue((self.folder / "roots" / "trixie").is_dir())

    def test_fails_where_apt_has_no_mirror_of_debian(self):
        self.program("apt-get", "exit 0")
        ran = self.make_root()
        self.assertEqual(ran.returncode, 1)
        self.assertIn("make-root: apt knows no mirror of Debian here", ran.stderr)
        self.assertFalse((self.folder / "arguments").exists())


if __name__ == "__main__":
    unittest.main()
