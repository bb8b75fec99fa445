#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples_test.py BUILD: the programs of examples/ as their comments describe them, over this build's agent and libraries: two
or more processes of one host. Needs root for a network namespace."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cpp"))
import installed  # noqa: E402: found by the line above

BUILD = pathlib.Path(sys.argv[1]).resolve()
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.cc"))
SKIPPED = 77
SECONDS = 60  # for one program
MAX_LINES = 150
PORT = "7471"
ANY = f"[::]:{PORT}"
SERVER = f"127.0.0.1:{PORT}"


class Program:
    """A running example. With `output`, a file, its standard output goes there, and only what it reports is read."""

    def __init__(self, case, name, *arguments, stdin=subprocess.DEVNULL, output=None):
        self.process = subprocess.Popen(
            [BUILD / "bin" / "verbena", "run", BUILD / "examples" / name, *arguments], stdin=stdin, text=True,
            stdout=output or subprocess.PIPE, stderr=subprocess.PIPE if output else subprocess.STDOUT)
        self.told = self.process.stderr if output else self.process.stdout
        self.lines = []
        deadline = threading.Timer(SECONDS, self.process.kill)
        deadline.start()
        case.addCleanup(self.end, deadline)

    def end(self, deadline):
        self.process.kill()
        self.process.wait()
        deadline.cancel()
        for pipe in (self.process.stdin, self.told):
            if pipe:
                pipe.close()

    def wait_for(self, text):
        """Reads lines up to one that has the text."""
        for line in self.told:
            self.lines.append(line)
            if text in line:
                return self
        raise AssertionError(f"{self.process.args}: ends without '{text}':\n{''.join(self.lines)}")

    def type(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def finish(self, status=0):
        """Waits for the end, and returns all that it has reported."""
        self.lines += self.told
        output = "".join(self.lines)
        if self.process.wait() != status:
            raise AssertionError(f"{self.process.args}: exit status {self.process.returncode}:\n{output}")
        return output


class Examples(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, *command, **options):
        return Program(self, *command, **options)

    def run_to_end(self, *command, status=0, **options):
        return self.start(*command, **options).finish(status)

    def test_are_short_and_described(self):
        page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
        for name in NAMES:
            with self.subTest(name):
                source = (EXAMPLES / f"{name}.cc").read_text(encoding="utf-8")
                self.assertLess(source.count("\n"), MAX_LINES)
                self.assertIn(f"verbena run {name} ", source)
                self.assertEqual(page.count(f"({name}.cc)"), 1)

    def test_print_their_usage(self):
        for name in NAMES:
            with self.subTest(name):
                self.assertRegex(self.run_to_end(name, status=1), f"^usage: {name} ")

    def test_report_that_the_server_is_not_there(self):
        (self.folder / "file").touch()
        for command in (["pingpong", "rc", PORT, "127.0.0.1"], ["ring", "atomic", PORT, "127.0.0.1"],
                        ["file_copy", "put", SERVER, self.folder / "file", "name"], ["lock", "count", SERVER, "1"],
                        ["kv", "get", SERVER, "key"], ["clock", "ask", SERVER]):
            with self.subTest(command[0]):
                self.assertRegex(self.run_to_end(*command, status=1), f"^{command[0]}: (connect|resolve).*refused")

    def test_the_clock_answers(self):
        self.start("clock", "serve", ANY).wait_for("serving")
        for own in ((), ("127.0.0.1:0",)):
            self.assertRegex(self.run_to_end("clock", "ask", SERVER, *own),
                             r"^the server's clock is [+-]\d+\.\d+ us ahead, within [\d.]+ us, by [1-8] ")

    def test_ping_pong_runs_over_each_transport(self):
        for transport in ("rc", "uc", "ud", "srq", "xrc"):
            with self.subTest(transport):
                server = self.start("pingpong", transport, PORT).wait_for("listening")
                expected = rf"(?m)^{transport}: \d+ round trips, [\d.]+ us each$"
                self.assertRegex(self.run_to_end("pingpong", transport, PORT, "127.0.0.1"), expected)
                self.assertRegex(server.finish(), expected)

    def file_server(self):
        shared = self.folder / "shared"
        shared.mkdir()
        self.start("file_copy", "serve", shared, ANY).wait_for("serving")
        return shared

    def test_file_copy_copies_files_of_any_size(self):
        shared = self.file_server()
        there, back = self.folder / "there", self.folder / "back"
        window = 4 << 20
        for size in (0, 1, window - 1, window, window + 1, 3 * window + 12345):
            with self.subTest(size):
                there.write_bytes(os.urandom(size))
                self.assertEqual(self.run_to_end("file_copy", "put", SERVER, there, "name"), f"{size} bytes\n")
                self.assertEqual((shared / "name").read_bytes(), there.read_bytes())
                self.assertEqual(self.run_to_end("file_copy", "get", SERVER, "name", back), f"{size} bytes\n")
                self.assertEqual(back.read_bytes(), there.read_bytes())

    def test_file_copy_stays_in_its_folder(self):
        shared = self.file_server()
        outside, own = self.folder / "outside", self.folder / "own"
        outside.write_text("outside")
        own.write_text("own")
        (shared / "link").symlink_to(outside)
        for name in ("../outside", str(outside), "link", "..", ".", "", "absent/name"):
            with self.subTest(name):
                self.assertIn("on the server", self.run_to_end("file_copy", "put", SERVER, own, name, status=1))
                self.assertIn("on the server", self.run_to_end("file_copy", "get", SERVER, name, own, status=1))
        self.assertEqual(outside.read_text(), "outside")
        self.assertEqual(own.read_text(), "own")
        self.assertEqual([path.name for path in shared.iterdir()], ["link"])

    def test_multicast_chat_reaches_the_other_member(self):
        ann, bob = (self.start("multicast_chat", "127.0.0.1", name, "239.1.2.3", stdin=subprocess.PIPE)
                    for name in ("ann", "bob"))
        ann.wait_for("joined")
        bob.wait_for("joined")
        ann.type("hello")
        bob.wait_for("ann: hello")
        bob.type("hello, ann")
        ann.wait_for("bob: hello, ann")
        for member in (ann, bob):
            member.process.stdin.close()
            member.finish()

    def test_ring_is_a_pipe(self):
        data, copy = self.folder / "data", self.folder / "copy"
        for how, size in (("atomic", 1_000_001), ("immediate", 1_000_001), ("atomic", 0), ("immediate", 0)):
            with self.subTest(how=how, size=size):
                data.write_bytes(os.urandom(size))
                with data.open("rb") as given, copy.open("wb") as taken:
                    consumer = self.start("ring", how, PORT, output=taken).wait_for("listening")
                    self.run_to_end("ring", how, PORT, "127.0.0.1", stdin=given)
                    consumer.finish()
                self.assertEqual(copy.read_bytes(), data.read_bytes())

    def test_lock_keeps_clients_apart(self):
        server = self.start("lock", "serve", ANY, "3").wait_for("listening")
        clients = [self.start("lock", "count", SERVER, "200") for _ in range(3)]
        for client in clients:
            self.assertRegex(client.finish(), r"^200 increments, \d+ attempts")
        self.assertIn("counter 600, expected 600\n", server.finish())

    def test_kv_stores_and_finds(self):
        self.start("kv", "serve", ANY).wait_for("serving")
        self.run_to_end("kv", "put", SERVER, "key", "value")
        self.run_to_end("kv", "put", SERVER, "other key", "")
        self.assertEqual(self.run_to_end("kv", "get", SERVER, "key"), "value\n")
        self.assertEqual(self.run_to_end("kv", "get", SERVER, "other key"), "\n")
        self.run_to_end("kv", "put", SERVER, "key", "a longer value")
        self.assertEqual(self.run_to_end("kv", "get", SERVER, "key"), "a longer value\n")
        self.assertRegex(self.run_to_end("kv", "stress", SERVER), r"^\d+ values, \d+ torn")

    def test_kv_reports_what_it_cannot_do(self):
        self.start("kv", "serve", ANY).wait_for("serving")
        self.assertIn("no key 'absent'", self.run_to_end("kv", "get", SERVER, "absent", status=1))
        self.assertIn("no key ''", self.run_to_end("kv", "get", SERVER, "", status=1))
        self.assertIn("Invalid argument", self.run_to_end("kv", "put", SERVER, "", "value", status=1))
        self.assertIn("too long", self.run_to_end("kv", "put", SERVER, "key", "x" * 181, status=1))

    def test_are_a_project_of_their_own(self):
        prefix = installed.Installation(BUILD, self.folder).prefix
        build = self.folder / "build"
        output = installed.run("cmake", "-S", EXAMPLES, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", with_errors=True)
        output += installed.run("cmake", "--build", build, "--target", "example_lock", with_errors=True)
        self.assertNotRegex(output, re.compile("warning", re.IGNORECASE))
        self.assertTrue(os.access(self.folder / "build" / "lock", os.X_OK))


if __name__ == "__main__":
    if not installed.enter_namespace():
        print("SKIPPED: network namespaces need root")
        sys.exit(SKIPPED)
    del sys.argv[1]
    unittest.main(verbosity=2)
