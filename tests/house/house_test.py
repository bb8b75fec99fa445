#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that each house rule finds a breach, in a small source tree made for the test."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import format as house_format

HERE = pathlib.Path(__file__).resolve().parent
LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"


class HouseRules(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="verbena-house-"))
        self.addCleanup(shutil.rmtree, self.root)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def rule(self, script):
        return subprocess.run([sys.executable, str(HERE / script), str(self.root)], capture_output=True,
                              text=True, check=False)

    def assert_broken(self, script, expected):
        ran = self.rule(script)
        self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
        self.assertIn(expected, ran.stdout)

    def assert_kept(self, script):
        ran = self.rule(script)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_lower_floor_may_be_included(self):
        self.write("src/adapter/queues/a.h", LICENCE + '#include "base/log.h"\n#include "adapter/queues/b.h"\n#include <memory>\n')
        self.assert_kept("include_order.py")

    def test_higher_floor_may_not_be_included(self):
        self.write("src/base/a.h", LICENCE + '\n#include "adapter/engine/shard.h"\n')
        self.assert_broken("include_order.py", "src/base/a.h:3: adapter/engine/shard.h is on floor 6")

    def test_another_room_of_the_same_floor_may_not_be_included(self):
        self.write("src/wire/roce/a.cc", '#include "adapter/memory/region.h"\n')
        self.assert_broken("include_order.py", "adapter/memory/region.h is on floor 2")

    def test_angle_brackets_hide_nothing(self):
        self.write("src/wire/roce/a.cc", "#include <adapter/engine/shard.h>\n")
        self.assert_broken("include_order.py", "adapter/engine/shard.h is on floor 6")

    def test_dots_hide_nothing(self):
        self.write("src/wire/roce/a.cc", '#include "wire/roce/../engine/shard.h"\n')
        self.assert_broken("include_order.py", "goes through '..'")

    def test_only_the_list_of_providers_names_the_adapter(self):
        self.write("src/libraries/libibverbs/a.cc", '#include "libraries/libibverbs/provider/provider.h"\n')
        self.write("src/libraries/libibverbs/registered_providers.cc", '#include "adapter/objects/software_adapter.h"\n')
        self.assert_kept("include_order.py")
        self.write("src/libraries/libibverbs/b.cc", '#include "adapter/objects/software_adapter.h"\n')
        self.assert_broken("include_order.py", "src/libraries/libibverbs/b.cc:1: adapter/objects/software_adapter.h is a provider")

    def test_only_the_room_base_includes_fmt(self):
        self.write("src/base/format.h", LICENCE + "#include <fmt/core.h>\n")
        self.assert_kept("include_order.py")
        self.write("src/base/log.h", LICENCE + "#include <fmt/format.h>\n")
        self.assert_broken("include_order.py", "src/base/log.h:2: fmt/format.h: include base/format.h instead")

    def test_only_commands_believe_their_environment(self):
        self.write("src/base/a.cc", LICENCE + 'auto* level = ::secure_getenv("VERBENA_LOG");\n')
        self.write("src/commands/verbena/verbena/a.cc", LICENCE + 'auto* terminal = std::getenv("TERM");\n')
        self.write("tests/base/a.cc", LICENCE + 'auto* seed = std::getenv("SEED");\n')
        self.assert_kept("environment.py")
        self.write("src/engine/a.cc", LICENCE + '\nauto* local = std::getenv("VERBENA_LOCAL");\n')
        self.assert_broken("environment.py", "src/engine/a.cc:3: getenv")

    def test_missing_standard_header_is_found(self):
        self.write("src/base/b.h", LICENCE + "#include <cstring>\n")
        self.write("src/base/a.cc", LICENCE + '#include "base/b.h"\nauto* a = &std::memcpy;\n')
        self.assert_kept("standard_headers.py")
        self.write("src/base/c.cc", LICENCE + "auto* a = &std::memcpy;\n")
        self.assert_broken("standard_headers.py", "src/base/c.cc:2: std::memcpy needs <cstring>")

    def test_new_room_needs_a_floor(self):
        self.write("src/attic/a.cc", "\n")
        self.assert_broken("include_order.py", "src/attic/a.cc: its folder has no floor")

    def test_agent_may_not_include_the_client(self):
        self.write("src/agent/a.cc", '#include "control/model/link.h"\n')
        self.assert_kept("include_order.py")
        self.write("src/agent/b.cc", '#include "control/client/client.h"\n')
        self.assert_broken("include_order.py", "src/agent/b.cc:1: control/client/client.h is of control/client/")

    def test_eleventh_folder_is_found(self):
        for folder in ("base", "wire/roce", "management/cm", "adapter/net", "control/model", "agent", "libraries/rsockets",
                       "preload/sysfs", "observe/trace", "commands"):
            self.write(f"src/{folder}/a.h", LICENCE)
        self.assert_kept("include_order.py")
        self.write("src/attic/a.h", LICENCE)
        self.assert_broken("include_order.py", "src/: 11 folders, at most 10")

    def test_headers_of_a_room_may_not_include_each_other_in_a_circle(self):
        self.write("src/adapter/queues/a.h", LICENCE + '#include "adapter/queues/b.h"\n')
        self.write("src/adapter/queues/b.h", LICENCE + '#include "adapter/queues/deep/c.h"\n')
        self.write("src/adapter/queues/deep/c.h", LICENCE + "#pragma once\n")
        self.write("src/adapter/queues/b.cc", LICENCE + '#include "adapter/queues/a.h"\n#include "adapter/queues/b.h"\n')
        self.assert_kept("include_order.py")
        self.write("src/adapter/queues/deep/c.h", LICENCE + '#include "adapter/queues/a.h"\n')
        self.assert_broken("include_order.py", "adapter/queues/a.h -> adapter/queues/b.h -> adapter/queues/deep/c.h -> adapter/queues/a.h")

    def test_hot_functions_exist(self):
        self.write("src/libraries/libibverbs/hot_functions.txt", "# those of a message\nverbena::engine::Shard::ring\nverbena::copy_small\n")
        self.write("src/adapter/engine/shard.cc", LICENCE + "void Shard::ring() {}\n")
        self.write("src/adapter/memory/ordered_copy.cc", LICENCE + "void copy_small() {}\n")
        self.assert_kept("hot_functions.py")
        self.write("src/adapter/engine/shard.cc", LICENCE + "void Shard::rings() {}\n")
        self.assert_broken("hot_functions.py", "hot_functions.txt:2: there is no verbena::engine::Shard::ring")

    def test_empty_tree_shows_nothing(self):
        self.assert_broken("include_order.py", "nothing to check")

    def test_missing_licence_is_found(self):
        self.write("src/base/a.h", "#pragma once\n")
        self.assert_broken("licence.py", "src/base/a.h:1")
        self.write("src/base/a.h", LICENCE + "#pragma once\n")
        self.assert_kept("licence.py")

    def test_script_names_its_licence_under_the_interpreter(self):
        self.write("tool.py", "#!/usr/bin/env python3\n# SPDX-License-Identifier: Apache-2.0\n")
        self.assert_kept("licence.py")

    def test_machine_path_is_found(self):
        self.write("docs/a.md", "see /wo" "rk/elsewhere\n")
        self.assert_broken("words.py", "docs/a.md:1")

    def test_path_outside_of_the_project_is_found(self):
        self.write("tests/CMakeLists.txt", "# x\nset(CAPTURES ${PROJECT_SOURCE_DIR}/." "./captures)\n")
        self.assert_broken("words.py", "tests/CMakeLists.txt:2")

    def test_mirror_of_packages_is_found_in_a_script_without_a_suffix(self):
        self.write("tests/packaging/make-root", "#!/bin/bash\ndebootstrap trixie root http://deb.deb" "ian.org/debian\n")
        self.assert_broken("words.py", "tests/packaging/make-root:2")

    def test_word_that_the_house_does_not_use_is_found(self):
        words = ("who" "ever", "Who" "soever", "le" "st", "is bor" "ne", "how-mani" "eth", "him" "self", "for ev" "er",
                 "be ha" "d", "ane" "w")
        for name, comment in (("src/base/a.h", "//"), ("a.py", "#"), ("docs/a.md", "-"), ("CMakeLists.txt", "#")):
            self.write(name, "".join(f"{comment} He {word} reads\n" for word in words))
            ran = self.rule("words.py")
            for number, word in enumerate(words, 1):
                self.assertIn(f"{name}:{number}: '{word}'", ran.stdout)
            self.assertEqual(ran.returncode, 1)
            self.write(name, f"{comment} The caller reads\n")
            self.assert_kept("words.py")

    def test_word_that_the_house_does_not_use_is_found_in_a_test_name(self):
        self.write("tests/base/a_test.cc", "TEST(Log, AnyLineIsBor" "ne) {}\n")
        self.assert_broken("words.py", "tests/base/a_test.cc:1")
        self.write("tests/base/a_test.cc", "TEST(Log, ReachesWho" "everReads) {}\n")
        self.assert_broken("words.py", "tests/base/a_test.cc:1")

    def test_common_words_like_those_are_kept(self):
        self.write("docs/a.md", "The smallest, largest and newest; airborne. The thread itself. However.\n")
        self.assert_kept("words.py")

    def test_riddle_is_found_in_a_comment_and_on_a_page(self):
        self.write("src/base/a.h", LICENCE + "// Holds the lock. Wh" "at it guards is below.\nint a;  // the peer, as ev" "er\n")
        self.assert_broken("sentences.py", "src/base/a.h:2: 'Wh" "at'")
        self.assert_broken("sentences.py", "src/base/a.h:3: 'as ev" "er'")
        self.write("src/base/a.h", LICENCE + "// Says what it guards, and who waits.\n// ---- Wh" "at follows is a heading\n")
        self.assert_kept("sentences.py")
        self.write("docs/a.md", "A page.\n\n- O" "f these two lines\n  one is a riddle.\n\n| Wh" "at | a table |\n")
        self.assert_broken("sentences.py", "docs/a.md:3: 'O" "f'")

    def test_word_that_the_glossary_replaces_is_found(self):
        self.write("src/base/a.h", LICENCE + "class Couri" "er;\nconstexpr int kMo" "stBytes = 1;\n")
        self.assert_broken("sentences.py", "src/base/a.h:2: 'Couri" "er': docs/glossary.md has the term")
        self.assert_broken("sentences.py", "src/base/a.h:3: 'kMo" "stBytes'")

    def test_line_of_a_page_that_is_too_wide_is_found(self):
        self.write("docs/a.md", "word " * 25 + "\n\n    " + "code " * 30 + "\n")
        self.assert_broken("sentences.py", "docs/a.md:1: 125 columns")

    def test_folder_that_the_quick_set_forgets_is_found(self):
        self.write("tests/base/CMakeLists.txt", "\n")
        self.write("tests/quick.txt", "base: base_test\n")
        self.assert_kept("quick_set.py")
        self.write("tests/attic/CMakeLists.txt", "\n")
        self.assert_broken("quick_set.py", "no line for tests/attic")

    def test_test_that_measures_real_time_is_found(self):
        self.write("tests/real_time.txt", "base_test Clock.Measures it is what it is about\n")
        self.write("tests/base/a_test.cc", "TEST(Clock, Measures) {\n  EXPECT_LT(Clock::now() - begin, second);\n}\n")
        self.assert_kept("real_time.py")
        self.write("tests/base/b_test.cc", "TEST(Clock, Waits) {\n  wait(now() + second);\n}\nTEST(Clock, Sleeps) {\n  sleep_for(second);\n}\n")
        self.assert_broken("real_time.py", "tests/base/b_test.cc:4: Clock.Sleeps measures real time")

    @unittest.skipUnless(house_format.find_program(), "no clang-format of the right release here")
    def test_bad_format_is_found(self):
        shutil.copy(HERE.parent.parent / ".clang-format", self.root)
        self.write("src/base/a.cc", "int  a ;\n")
        self.assert_broken("format.py", "src/base/a.cc:1")
        self.write("src/base/a.cc", "int a;\n")
        self.assert_kept("format.py")


if __name__ == "__main__":
    unittest.main()
