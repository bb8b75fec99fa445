#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
""".ci/run reports failures, steps that are cut short, and turns. ./test and ctest are stand-ins."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CI = pathlib.Path(__file__).resolve().parents[2] / ".ci"
sys.path.insert(0, str(CI))
import turns  # noqa: E402  pylint: disable=wrong-import-position

HOUR = 3600
LOG = """1/3 Testing: Good.Test
Test Passed.
2/3 Testing: Bad.Test
Test Failed.
3/3 Testing: Cut.Test
"""
WRITES_LOG = "mkdir -p build/release/Testing/Temporary && cat >build/release/Testing/Temporary/LastTest.log"


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="verbena-ci-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(CI, self.root / ".ci")
        self.program("test", "exit 0")
        self.program("bin/ctest", "exit 0")

    def program(self, name, script):
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def run_ci(self, **environment):
        environment = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}", "VERBENA_CI_TURN": "matrices",
                       "VERBENA_CI_STATE": str(self.root / "state.json"), **environment}
        return subprocess.run([self.root / ".ci" / "run"], env=environment, capture_output=True, text=True, timeout=60, check=False)

    def test_passes_and_says_so_for_the_turn(self):
        ran = self.run_ci()
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("matrices: last passed by unknown, 0 hours ago", ran.stdout)
        self.assertIn("kernel: not passed yet", ran.stdout)

    def test_failures_before_the_cut_are_failures(self):
        self.program("test", f'[ "$1" = quick ] && exit 0\n{WRITES_LOG}.tmp <<"END"\n{LOG}END\nexec sleep 60')
        self.program("bin/ctest", "exit 1")
        ran = self.run_ci(VERBENA_CI_SECONDS="3")
        self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
        self.assertIn("matrices: cut short, no time left; tests that ended: 2", ran.stdout)
        self.assertIn("== failed: matrices: Bad.Test", ran.stdout)
        self.assertIn("matrices: not passed yet", ran.stdout)

    def test_flaky_test_of_the_last_step_is_reported(self):
        self.program("test", f'[ "$1" = quick ] && exit 0\n{WRITES_LOG} <<"END"\n{LOG}END\nexit 8')
        ran = self.run_ci()
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("== failed once, a bug to mend: matrices: Bad.Test", ran.stdout)
        self.assertIn("matrices: not passed yet", ran.stdout)

    def test_failed_build_is_a_failure(self):
        self.program("test", '[ "$1" = quick ] || exit 1')
        ran = self.run_ci()
        self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
        self.assertIn("== failed: matrices", ran.stdout)


class Turns(unittest.TestCase):
    def test_turns_follow_the_commits_where_nothing_is_known(self):
        self.assertEqual([turns.choose({}, count, ("a", "b"), 0) for count in (4, 5, 6)], ["a", "b", "a"])

    def test_turn_that_has_not_passed_for_a_day_goes_first(self):
        state = {"a": {"tried": 0, "passed": 0}, "b": {"tried": 20 * HOUR, "passed": 20 * HOUR}}
        self.assertEqual(turns.choose(state, 1, ("a", "b"), 25 * HOUR), "a")
        self.assertEqual(turns.choose(state, 1, ("a", "b"), 23 * HOUR), "b")

    def test_turn_that_fails_does_not_keep_other_late_turns_away(self):
        state = {"a": {"tried": 30 * HOUR}, "b": {"tried": 1 * HOUR, "passed": 1 * HOUR}}
        self.assertEqual(turns.choose(state, 0, ("a", "b"), 31 * HOUR), "b")


if __name__ == "__main__":
    unittest.main()
