// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/program_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace verbena::commands {
namespace {

namespace fs = std::filesystem;

class ProgramFile : public testing::Test {
 protected:
  ProgramFile() {
    std::string name = (fs::temp_directory_path() / "verbena-program-file-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~ProgramFile() override { fs::remove_all(folder_); }

  fs::path make(const std::string& name, mode_t mode, const std::string& text = "x") const {
    const fs::path file = folder_ / name;
    std::ofstream(file) << text;
    ::chmod(file.c_str(), mode);
    return file;
  }

  fs::path folder_;
};

TEST_F(ProgramFile, IsTheFirstInPathThatCanBeRun) {
  const std::string before = std::getenv("PATH");
  make("one", 0644);
  setenv("PATH", ("/nowhere:" + folder_.string()).c_str(), 1);
  EXPECT_EQ(find_program("one"), fs::path());
  ::chmod((folder_ / "one").c_str(), 0755);
  EXPECT_EQ(find_program("one"), folder_ / "one");
  fs::create_directory(folder_ / "two");
  EXPECT_EQ(find_program("two"), fs::path());
  EXPECT_EQ(find_program("./two"), fs::path("./two"));
  setenv("PATH", before.c_str(), 1);
}

TEST_F(ProgramFile, NamesTheInterpreterOfAScript) {
  EXPECT_EQ(interpreter_of_script(make("a", 0755, "#!/bin/sh -e\n")), "/bin/sh");
  EXPECT_EQ(interpreter_of_script(make("b", 0755, "#! /usr/bin/env python3\n")), "python3");
  EXPECT_EQ(interpreter_of_script(make("c", 0755, "echo\n")), "");
  EXPECT_EQ(interpreter_of_script("/nowhere"), "");
}

TEST_F(ProgramFile, OfItsOwnUserGivesNoPrivilege) {
  EXPECT_EQ(privilege_gained_by(make("plain", 0755)), nullptr);
  EXPECT_EQ(privilege_gained_by(make("own", 06755)), nullptr);
  EXPECT_EQ(privilege_gained_by("/nowhere"), nullptr);
}

TEST_F(ProgramFile, OfAnotherUserGivesPrivilege) {
  const fs::path file = make("other", 0755);
  if (::chown(file.c_str(), 12345, ::getegid()) != 0) GTEST_SKIP() << "only root gives files away";
  ::chmod(file.c_str(), 04755);
  EXPECT_STREQ(privilege_gained_by(file), "set-user-ID");
  ASSERT_EQ(::chown(file.c_str(), ::geteuid(), 12345), 0);
  ::chmod(file.c_str(), 02755);
  EXPECT_STREQ(privilege_gained_by(file), "set-group-ID");
  ::chmod(file.c_str(), 02744);  // mandatory locking
  EXPECT_EQ(privilege_gained_by(file), nullptr);
}

}  // namespace
}  // namespace verbena::commands
