#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hardening_test.py BUILD CONFIGURATION [TEST...]: the installed programs and libraries have the compiler's and linker's
protections against exploits."""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

BUILD = None
OPTIMIZED = True

PROGRAMS = ["bin/verbena-agent", "bin/verbena"]
# Their run path leads to our libraries, next to which they are installed.
OWN = ["programs/ibv_devices", "programs/ibv_devinfo", "programs/ibv_asyncwatch", "programs/ibv_rc_pingpong", "programs/ibv_uc_pingpong",
       "programs/ibv_ud_pingpong", "programs/ibv_srq_pingpong", "programs/ibv_xsrq_pingpong",
       "programs/rping", "programs/ucmatose", "programs/udaddy", "programs/mckey", "programs/cmtime",
       "programs/rdma_client", "programs/rdma_server", "programs/rdma_xclient", "programs/rdma_xserver"]
LIBRARIES = ["lib/libibverbs.so.1", "lib/librdmacm.so.1", "lib/libmlx5.so.1", "lib/libefa.so.1", "lib/libverbena-sys.so",
             "lib/libverbena-memory.so"]


def readelf(option, file):
    return subprocess.run(["readelf", "--wide", option, str(file)], capture_output=True, text=True, check=True).stdout


class Hardening(unittest.TestCase):
    def each(self, files):
        for name in files:
            with self.subTest(name):
                self.assertTrue((BUILD / name).exists(), "not built")
                yield BUILD / name

    def test_what_is_bound_at_the_start_is_read_only_afterwards(self):
        for file in self.each(PROGRAMS + OWN + LIBRARIES):
            self.assertIn("GNU_RELRO", readelf("--program-headers", file))
            dynamic = readelf("--dynamic", file)
            self.assertRegex(dynamic, r"\(FLAGS\).*BIND_NOW|\(FLAGS_1\).*NOW")

    def test_no_memory_is_written_and_executed(self):
        for file in self.each(PROGRAMS + OWN + LIBRARIES):
            for line in readelf("--program-headers", file).splitlines():
                if line.strip().startswith(("LOAD", "GNU_STACK")):
                    self.assertNotRegex(line, r"\bRWE\b")
            self.assertNotIn("TEXTREL", readelf("--dynamic", file))

    def test_programs_lie_where_chance_puts_them(self):
        for file in self.each(PROGRAMS + OWN):
            self.assertRegex(readelf("--file-header", file), r"Type:\s+DYN")
            self.assertRegex(readelf("--dynamic", file), r"\(FLAGS_1\).*PIE")

    def test_nobody_can_put_a_library_in_their_way(self):
        for file in self.each(PROGRAMS):
            self.assertNotRegex(readelf("--dynamic", file), r"\((RPATH|RUNPATH)\)")

    def test_run_paths_begin_at_the_root_or_at_the_file(self):
        for file in self.each(PROGRAMS + OWN + LIBRARIES):
            for path in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", readelf("--dynamic", file)):
                for element in path.split(":"):
                    self.assertRegex(element, r"^(/|\$ORIGIN)", file)  # an empty one is the working directory

    def test_stacks_of_programs_are_watched(self):
        for file in self.each(PROGRAMS + OWN):
            self.assertIn("__stack_chk_fail", readelf("--dyn-syms", file))

    def test_copies_of_programs_are_bounded_where_the_compiler_knows_the_bounds(self):
        if not OPTIMIZED:
            self.skipTest("only where the compiler optimizes")
        for file in self.each(PROGRAMS):
            self.assertRegex(readelf("--dyn-syms", file), r"__\w+_chk@GLIBC")

    def test_functions_of_programs_are_entered_at_their_beginning_only(self):
        if "X86-64" not in readelf("--file-header", BUILD / PROGRAMS[0]):
            self.skipTest("of other processors nobody has told us how to see it")
        for file in self.each(PROGRAMS):
            main = subprocess.run(["objdump", "--disassemble=main", "--no-show-raw-insn", str(file)], capture_output=True,
                                  text=True, check=True).stdout
            self.assertIn("endbr64", main)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    if not (shutil.which("readelf") and shutil.which("objdump")):
        print("skipped: binutils is not there")
        sys.exit(77)
    BUILD, OPTIMIZED = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2] != "Debug"
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
