// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
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
  ~SysfsFile() override {
    std::remove((dir_ + "/file").c_str());
    std::remove(dir_.c_str());
  }
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

// The path is read once in a process, so each case has a process of its own.
TEST(SysfsPathDeathTest, IsTheUsualOneOrTheCallers) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto path_is = [](const char* wanted) {
    std::exit(std::string(ibv_get_sysfs_path()) == wanted ? 0 : 1);
  };
  EXPECT_EXIT((unsetenv("SYSFS_PATH"), path_is("/sys")), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT((setenv("SYSFS_PATH", "/run/fake//", 1), path_is("/run/fake")), ::testing::ExitedWithCode(0),
              "");
}

}  // namespace
