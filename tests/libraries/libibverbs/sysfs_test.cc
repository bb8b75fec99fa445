// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

extern "C" {
const char* ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size);
}

namespace {

class SysfsFile : public ::testing::Test {
 protected:
  SysfsFile() {
    char name[] = "/tmp/verbena-sysfs-XXXXXX";
    if (mkdtemp(name) == nullptr) std::abort();
    dir_ = name;
  }
  ~SysfsFile() override { std::filesystem::remove_all(dir_); }
  int read(const std::string& content, size_t size) {
    std::ofstream(dir_ + "/file") << content;
    return ibv_read_sysfs_file(dir_.c_str(), "file", buffer_, size);
  }

  std::string dir_;
  char buffer_[16];
};

TEST_F(SysfsFile, LosesItsLastNewline) {
  EXPECT_EQ(read("4: ACTIVE\n", sizeof buffer_), 9);
  EXPECT_STREQ(buffer_, "4: ACTIVE");
  EXPECT_EQ(read("none", sizeof buffer_), 4);
  EXPECT_STREQ(buffer_, "none");
  EXPECT_EQ(read("", sizeof buffer_), 0);
}

TEST_F(SysfsFile, MustFitWithItsTerminatingZero) {
  EXPECT_EQ(read("abc", 4), 3);
  EXPECT_EQ(read("abc\n", 4), 3);
  EXPECT_EQ(read("abcd", 4), -1);
}

TEST_F(SysfsFile, MayBeMissing) {
  errno = 0;
  EXPECT_EQ(ibv_read_sysfs_file("/nowhere", "file", buffer_, sizeof buffer_), -1);
  EXPECT_EQ(errno, ENOENT);
}

// A process looks the path up once, so each case has its own process.
class SysfsPathDeathTest : public SysfsFile {
 protected:
  SysfsPathDeathTest() {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    unsetenv("SYSFS_PATH");
    setenv("VERBENA_SYS_DIR", "", 1);  // no agent
  }
  ~SysfsPathDeathTest() override { unsetenv("VERBENA_SYS_DIR"); }
  // Ends the child, which has a directory of its own.
  void exit_if(bool right) {
    std::filesystem::remove_all(dir_);
    std::exit(right ? 0 : 1);
  }
  static bool is(const std::string& wanted) { return wanted == ibv_get_sysfs_path(); }
};

TEST_F(SysfsPathDeathTest, IsTheUsualOneWithoutAnAgent) {
  EXPECT_EXIT(exit_if(is("/sys")), ::testing::ExitedWithCode(0), "");
}

TEST_F(SysfsPathDeathTest, IsTheUsersOwnChoice) {
  setenv("SYSFS_PATH", "/run/fake//", 1);
  EXPECT_EXIT(exit_if(is("/run/fake")), ::testing::ExitedWithCode(0), "");
  unsetenv("SYSFS_PATH");
}

TEST_F(SysfsPathDeathTest, IsTheAgentsAsSoonAsThereIsOne) {
  const auto agent_comes = [&] {
    const bool before = is("/sys");
    std::filesystem::create_directories(dir_ + "/sys/class/infiniband");
    setenv("VERBENA_SYS_DIR", dir_.c_str(), 1);
    const bool with_agent = is(dir_ + "/sys");
    exit_if(before && with_agent && is(dir_ + "/sys"));
  };
  EXPECT_EXIT(agent_comes(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
