# SPDX-License-Identifier: Apache-2.0
"""Debian's programs must work under the preload of `verbena run --shared-memory` as without it.

programs_test.py LIBRARY OWN_ALLOCATOR_PROBE VERSION_SCRIPT
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

LIBRARY, PROBE, VERSION_SCRIPT = map(os.path.abspath, sys.argv[1:4])

# Uses shared, private and forked memory at once, like a large program that uses multiprocessing.
PYTHON = """
import hashlib, multiprocessing, os, sys, threading

blocks = [bytearray(os.urandom(1) * (n * 100_000)) for n in range(1, 30)]
before = [hashlib.sha256(block).hexdigest() for block in blocks]

def work(number):
    for _ in range(20):
        block = bytearray(300_000 + number)
        assert not any(block[::4096])
        block[:] = bytes([number]) * len(block)
        block.extend(bytes(500_000))
        assert block[300_000] == number and block[-1] == 0

def child(number):
    found = [hashlib.sha256(block).hexdigest() for block in blocks]
    for block in blocks:
        block[:] = bytes(len(block))
    return found

threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
for thread in threads:
    thread.start()
with multiprocessing.get_context('fork').Pool(3) as pool:
    for found in pool.map(child, range(1), chunksize=1):
        assert found == before
for thread in threads:
    thread.join()
assert [hashlib.sha256(block).hexdigest() for block in blocks] == before
assert ('/memfd:verbena' in open('/proc/self/maps').read()) == (len(sys.argv) > 1)
print('done')
"""


class Programs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="verbena-backing-")
        self.addCleanup(shutil.rmtree, self.folder)

    def run_program(self, *command, preload=True, **options):
        environment = dict(os.environ, LC_ALL="C")
        environment.pop("LD_PRELOAD", None)
        if preload:
            environment["LD_PRELOAD"] = LIBRARY
        return subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False, **options)

    def output_of(self, *command, **options):
        ran = self.run_program(*command, **options)
        self.assertEqual(ran.stderr.decode(), "")
        self.assertEqual(ran.returncode, 0)
        return ran.stdout

    def assert_unchanged(self, *command, **options):
        self.assertEqual(self.output_of(*command, **options), self.output_of(*command, preload=False, **options))

    def numbers(self):
        return "\n".join(str(n * 7919 % 1_000_003) for n in range(400_000)).encode()

    def test_ls(self):
        self.assert_unchanged("ls", "-lR", "/usr/include/linux")

    def test_sort_with_threads(self):
        self.assert_unchanged("sort", "-n", "--parallel=4", input=self.numbers())

    def test_sort_with_little_memory(self):
        self.assert_unchanged("sort", "-n", "-S", "1M", "-T", self.folder, input=self.numbers())

    def test_compression(self):
        for program in ("gzip", "xz"):
            if shutil.which(program):
                packed = self.output_of(program, "-c", input=self.numbers())
                self.assertEqual(self.output_of(program, "-dc", input=packed), self.numbers())

    def test_shells(self):
        script = "for i in 1 2 3; do (echo $i; exec cat) < /dev/null | sort; done; x=$(seq 1 100000); echo ${#x}"
        for shell in ("sh", "bash"):
            self.assert_unchanged(shell, "-c", script)

    def test_perl(self):
        if not shutil.which("perl"):
            self.skipTest("no perl")
        self.assert_unchanged("perl", "-e", "my $x = 'ab' x 500000; if (fork() == 0) { $x =~ tr/a/c/; exit } wait; "
                              "print length($x), substr($x, 999990), qx(echo hello)")

    def test_python_with_threads_and_children(self):
        script = os.path.join(self.folder, "script.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(PYTHON)
        self.assertEqual(self.output_of(sys.executable, script, "shared"), b"done\n")
        self.assertEqual(self.output_of(sys.executable, script, preload=False), b"done\n")

    def test_a_program_with_its_own_allocator_keeps_it(self):
        self.assertEqual(self.run_program(PROBE, preload=False).returncode, 0)
        self.assertEqual(self.run_program(PROBE).returncode, 0)


class Library(unittest.TestCase):
    def elf(self, *options):
        return subprocess.run(["readelf", "-W", *options, LIBRARY], capture_output=True, text=True, check=True).stdout

    def test_exports_what_the_version_script_says(self):
        with open(VERSION_SCRIPT, encoding="utf-8") as script:
            wanted = re.findall(r"^    (\w+);", script.read(), re.MULTILINE)
        exported = re.findall(r" (?:GLOBAL|WEAK) +DEFAULT +\d+ (\w+)$", self.elf("--dyn-syms"), re.MULTILINE)
        self.assertEqual(sorted(exported), wanted)

    def test_needs_the_c_library_alone(self):
        self.assertEqual(re.findall(r"NEEDED.*\[(.*)\]", self.elf("-d")), ["libc.so.6"])

    def test_is_the_first_to_begin(self):
        self.assertIn("INITFIRST", self.elf("-d"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
