#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The installed C++ API in a project of somebody else: by find_package() and by pkg-config, with each compiler that is here,
as C++20 and C++23, without warnings. The program then runs over this build's libraries. Needs root for a network namespace."""

import itertools
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

from installed import Installation, run

BUILD = pathlib.Path(sys.argv.pop(1))
CONSUMER = pathlib.Path(__file__).resolve().parent / "consumer"
COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]
IN_NAMESPACE = ("ip link set lo up && ip link add one type veth peer name other && ip addr add 10.9.9.1/24 dev one && "
                "ip link set one up && ip link set other up && exec \"$@\"")


class InstalledApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.top = pathlib.Path(cls.folder.name)
        cls.installed = Installation(BUILD, cls.top)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_is_found_by_cmake_and_works(self):
        for compiler, standard in itertools.product(COMPILERS, (20, 23)):
            with self.subTest(compiler=compiler, standard=standard):
                build = self.top / f"{compiler}-{standard}"
                run("cmake", "-S", CONSUMER, "-B", build, f"-DCMAKE_PREFIX_PATH={self.installed.prefix}",
                    f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_CXX_STANDARD={standard}")
                run("cmake", "--build", build)
                if os.geteuid() == 0:
                    self.assertEqual(self.output_of(build / "consumer"), "hello\n")

    def test_is_found_by_pkg_config(self):
        flags = run("pkg-config", "--cflags", "--libs", "verbena", env=self.installed.environment).split()
        self.assertIn("-libverbs", flags)
        run(COMPILERS[0], "-std=c++20", CONSUMER / "consumer.cc", "-o", self.top / "consumer", *flags)

    def output_of(self, program):
        return run("unshare", "--net", "sh", "-c", IN_NAMESPACE, "sh", BUILD / "bin/verbena", "run", program)


if __name__ == "__main__":
    unittest.main(verbosity=2)
