#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The installed C++ API in a project of somebody else: by find_package() and by pkg-config, with each compiler that is here,
as C++20 and C++23. The program then runs over this build's libraries. All headers, the examples and the program compile without
warnings. Needs root for a network namespace."""

import concurrent.futures
import itertools
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

from installed import Installation, run

BUILD = pathlib.Path(sys.argv.pop(1))
TOP = pathlib.Path(__file__).resolve().parents[2]
CONSUMER = TOP / "tests" / "cpp" / "consumer"
EXAMPLES = sorted((TOP / "examples").glob("*.cc"))
HEADERS = sorted(path.relative_to(TOP / "include") for path in (TOP / "include").rglob("*.hpp"))
# Headers that need a library which not everybody has.
OPTIONAL = {"verbena/async/asio.hpp": "asio.hpp", "verbena/rpc/protobuf.hpp": "google/protobuf/service.h"}
COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]
IN_NAMESPACE = ("ip link set lo up && ip link add one type veth peer name other && ip addr add 10.9.9.1/24 dev one && "
                "ip link set one up && ip link set other up && exec \"$@\"")


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.top = pathlib.Path(cls.folder.name)
        cls.installed = Installation(BUILD, cls.top)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()


class InstalledApi(Installed):
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


class Warnings(Installed):
    def test_are_none_in_headers_and_examples(self):
        """CMake takes the headers of packages for those of the system, in which compilers do not warn."""
        headers = self.top / "headers.cc"
        headers.write_text("".join(
            f"#if __has_include(<{OPTIONAL.get(str(each), each)}>)\n#include <{each}>\n#endif\n" for each in HEADERS), encoding="utf-8")
        flags = ("-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only", f"-I{self.installed.prefix / 'include'}")

        def complaint(compiler, standard, source):
            try:
                run(compiler, f"-std={standard}", *flags, source)
            except AssertionError as failed:
                return str(failed)
            return None

        every = list(itertools.product(COMPILERS, ("c++20", "c++2b"), (headers, CONSUMER / "consumer.cc", *EXAMPLES)))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            complaints = [found for found in pool.map(complaint, *zip(*every)) if found]
        if complaints:
            self.fail("\n".join(complaints))


if __name__ == "__main__":
    unittest.main(verbosity=2)
