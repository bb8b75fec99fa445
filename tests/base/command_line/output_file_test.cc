// SPDX-License-Identifier: Apache-2.0
#include "base/command_line/output_file.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace verbena::command_line {
namespace {

constexpr uid_t kStranger = 65534;

class OutputFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "outputXXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    write("precious", "kept");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }
  std::string text_of(const std::string& name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Gives a name to another user. False: this user may not.
  bool give_away(const std::string& name) const {
    return ::lchown(path(name).c_str(), kStranger, kStranger) == 0;
  }

  std::filesystem::path folder_;
};

TEST_F(OutputFile, IsMadeOrEmptiedAndWritten) {
  EXPECT_TRUE(write_output(path("new"), "one"));
  EXPECT_EQ(text_of("new"), "one");
  EXPECT_TRUE(write_output(path("precious"), "2"));
  EXPECT_EQ(text_of("precious"), "2");
  std::filesystem::create_symlink("new", path("link"));
  EXPECT_TRUE(write_output(path("link"), "three"));
  EXPECT_EQ(text_of("new"), "three") << "a link of one's own";
}

TEST_F(OutputFile, IsReadableForThisUserOnlyIfSoWanted) {
  ASSERT_EQ(::chmod(path("precious").c_str(), 0644), 0);
  struct stat seen {};
  ASSERT_TRUE(write_output(path("precious"), "public"));
  ASSERT_EQ(::stat(path("precious").c_str(), &seen), 0);
  EXPECT_EQ(seen.st_mode & 0777, 0644u);
  ASSERT_TRUE(open_output(path("precious"), OutputReaders::kThisUser));
  ASSERT_EQ(::stat(path("precious").c_str(), &seen), 0);
  EXPECT_EQ(seen.st_mode & 0777, 0600u);
}

TEST_F(OutputFile, IsNoLinkPipeOrFileOfAnotherUser) {
  std::filesystem::create_symlink(path("precious"), path("link"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0666), 0);
  write("file", "theirs");
  for (const char* name : {"link", "pipe", "file"}) {
    if (!give_away(name)) GTEST_SKIP() << "needs root";
    const auto written = write_output(path(name), "lost");
    ASSERT_FALSE(written) << name;
    EXPECT_EQ(written.error().code, EPERM) << name;
  }
  EXPECT_EQ(text_of("precious"), "kept");
  EXPECT_EQ(text_of("file"), "theirs");
}

TEST_F(OutputFile, SaysWhyItCannotBeWritten) {
  EXPECT_EQ(write_output(path("nowhere/file"), "").error().code, ENOENT);
  EXPECT_EQ(write_output(folder_, "").error().code, EISDIR);
  EXPECT_EQ(write_output("/dev/full", "text").error().code, ENOSPC);
}

}  // namespace
}  // namespace verbena::command_line
