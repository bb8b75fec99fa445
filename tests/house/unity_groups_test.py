#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unity_groups.py joins files without common names, and separates files with common names."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

GROUPS = pathlib.Path(__file__).resolve().parents[2] / "cmake" / "unity_groups.py"
sys.path.insert(0, str(GROUPS.parent))
import unity_groups  # noqa: E402  pylint: disable=wrong-import-position


class Names(unittest.TestCase):
    def assert_declares(self, text, *names):
        self.assertEqual(set(unity_groups.declared("namespace verbena {\nnamespace {\n" + text + "\n}\n}\n")), set(names))

    def test_functions_and_their_bodies(self):
        self.assert_declares("int wait(int a) { int local = a; return call(local); }\nvoid stop();", "wait", "stop")

    def test_constants_and_arrays(self):
        self.assert_declares("constexpr size_t kSize = other::kPage * 2;\nconst Row kRows[] = {{1, two()}, {3}};\nstd::atomic<int> count{0};",
                             "kSize", "kRows", "count")

    def test_types(self):
        self.assert_declares("struct Bound { int most = 3; void grow(); };\nclass Fixture : public Base {};\nenum class Way { kWire };\n"
                             "using Clock = MonotonicClock;", "Bound", "Fixture", "Way", "Clock")

    def test_tests(self):
        self.assert_declares('TEST(Suite, Name) { EXPECT_EQ(f(), "a(b"); }\nTEST_F(Suite, Other) {}', "Suite_Name", "Suite_Other")

    def test_macros_and_names_of_others(self):
        self.assert_declares("#define STEP(x) x\nusing testing::ElementsAre;\n// int commented = 1;\nusing namespace std::chrono_literals;", "STEP")

    def test_definitions_after_an_open_bracket_in_a_string(self):
        self.assert_declares("const char* text = \"{\";\nint after = '{';", "text", "after")


class Groups(unittest.TestCase):
    def groups(self, size, *texts):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, text in enumerate(texts):
                paths.append(pathlib.Path(folder) / f"{number}.cc")
                paths[-1].write_text(text, encoding="utf-8")
            ran = subprocess.run([sys.executable, GROUPS, str(size), *paths], capture_output=True, text=True, check=True)
        return [int(line) for line in ran.stdout.split()]

    def test_files_with_a_name_in_common_are_kept_apart(self):
        self.assertEqual(self.groups(8, "const int a = 1;", "const int b = 1;", "static void a() {}", "static int c;"), [0, 0, 1, 0])

    def test_name_that_another_file_uses_from_elsewhere_is_not_hidden(self):
        self.assertEqual(self.groups(8, "namespace { void fail(int a) {} }", "void stop() { fail(1); }"), [0, 1])
        self.assertEqual(self.groups(8, "namespace { void fail(int a) {} }", "void stop() { base::fail(1); state.fail(2); }"), [0, 0])

    def test_functions_that_all_files_know_are_called(self):
        self.assertEqual(self.groups(8, "void fail(int a) {}", "void stop() { fail(1); }"), [0, 0])

    def test_equal_aliases_may_be_repeated(self):
        self.assertEqual(self.groups(8, "using Op = roce::Opcode;", "using Op = roce::Opcode; Op next();", "using Op = int;"), [0, 0, 1])

    def test_a_group_is_not_larger_than_asked(self):
        self.assertEqual(self.groups(2, "int a;", "int b;", "int c;"), [0, 0, 1])


if __name__ == "__main__":
    unittest.main()
