#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tutorial_test.py BUILD: the tutorial's programs compile against the installed API without warnings, and its commands print what
the page shows. Each block begins with the name of its file; a command that ends with & runs on, and prints its lines at first.
`kill -INT %1` interrupts it, and shows the lines of its end. Needs root for a network namespace."""

import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import installed

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/tutorial.md"
WARNINGS = "-Wall -Wextra -Wconversion -Wshadow -Werror"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands(block):
    """The commands of a console block, each with the lines that it prints."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


class Tutorial(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.top = pathlib.Path(cls.folder.name)
        cls.environment = installed.Installation(BUILD, cls.top).environment
        for block in blocks("cpp"):
            name = re.match(r"// (\S+)\n", block)
            if name:
                (cls.top / name.group(1)).write_text(block, encoding="utf-8")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def start(self, command):
        if command.startswith("g++ "):
            command = command.replace("g++ ", f"g++ {WARNINGS} ", 1)
        else:
            command = f"{BUILD}/bin/verbena run {command}"
        return subprocess.Popen(["bash", "-o", "pipefail", "-c", command.removesuffix("&")], cwd=self.top, env=self.environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def interrupt(self, process):
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=120)[0]
        return process.returncode, text.splitlines()

    def run_block(self, block):
        running = []
        try:
            for command, lines in commands(block):
                if not IS_IN_NAMESPACE and not command.startswith("g++"):
                    continue
                with self.subTest(command):
                    if command == "kill -INT %1":
                        self.assertEqual(self.interrupt(running.pop(0)), (0, lines))
                        continue
                    process = self.start(command)
                    if command.endswith("&"):
                        running.append(process)
                        self.assertEqual([process.stdout.readline().rstrip("\n") for _ in lines], lines)
                    else:
                        self.assertEqual(process.communicate(timeout=120)[0].splitlines(), lines)
        finally:
            for process in running:
                process.kill()
                process.communicate()

    def test_commands_print_what_the_page_shows(self):
        self.assertGreater(len(blocks("console")), 5)
        for block in blocks("console"):
            self.run_block(block)


if __name__ == "__main__":
    IS_IN_NAMESPACE = installed.enter_namespace()
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
