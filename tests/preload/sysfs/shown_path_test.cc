// SPDX-License-Identifier: Apache-2.0
// The targets of redirected paths, tested in one process so that the sanitizers see it. facade_test.py tests
// what programs see.
#include "preload/sysfs/shown_path.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/random.h"

namespace verbena::sysfs {
namespace {

namespace fs = std::filesystem;

class Shown : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/verbena-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    home_ = name;
    fs::create_directories(home_ + "/sys/class/infiniband/rxe_x/ports/1");
    fs::create_directories(home_ + "/dev/infiniband");
    fs::create_symlink("/dev/null", home_ + "/dev/infiniband/rxe_x");
    fs::create_directory_symlink("ports/1", home_ + "/sys/class/infiniband/rxe_x/link");
  }
  void TearDown() override { fs::remove_all(home_); }

  // Returns the target of the path, relative to the home; "" if the path is not redirected.
  std::string target_of(const char* path, int directory = AT_FDCWD) const {
    const ShownPath where(home_.c_str(), directory, path);
    if (!where.shown()) return {};
    EXPECT_EQ(where.home(), home_);
    return where.target() + home_.size();
  }

  std::string home_;
};

TEST(RootOf, ComparesWholeComponents) {
  EXPECT_STREQ(root_of("/sys/class/infiniband"), "/sys/class/infiniband");
  EXPECT_STREQ(root_of("/sys/class/infiniband/a/b"), "/sys/class/infiniband");
  EXPECT_STREQ(root_of("/sys/class/infiniband_verbs/a"), "/sys/class/infiniband_verbs");
  EXPECT_STREQ(root_of("/dev/infiniband/a"), "/dev/infiniband");
  EXPECT_EQ(root_of("/sys/class/infiniband2"), nullptr);
  EXPECT_EQ(root_of("/sys/class/infini"), nullptr);
  EXPECT_EQ(root_of(""), nullptr);
}

TEST(MayBeShown, SeesTheWordAnywhere) {
  EXPECT_TRUE(may_be_shown("/sys/class/infiniband"));
  EXPECT_TRUE(may_be_shown("infiniband_mad/x"));
  EXPECT_FALSE(may_be_shown("/sys/class/net"));
  EXPECT_FALSE(may_be_shown(""));
  EXPECT_FALSE(may_be_shown(nullptr));
}

TEST_F(Shown, LeadsIntoTheHome) {
  EXPECT_EQ(target_of("/sys/class/infiniband/rxe_x"), "/sys/class/infiniband/rxe_x");
  EXPECT_EQ(target_of("//sys/./class//infiniband/rxe_x//ports/"), "/sys/class/infiniband/rxe_x/ports/");
  EXPECT_EQ(target_of("/dev/infiniband/rxe_x"), "/dev/infiniband/rxe_x");
}

TEST_F(Shown, LeavesMissingPathsUnchanged) {
  EXPECT_EQ(target_of("/sys/class/infiniband/rxe_y"), "");
  EXPECT_EQ(target_of("/sys/class/infiniband_cm"), "");
  EXPECT_EQ(target_of("/sys/class/net"), "");
  EXPECT_EQ(target_of("/"), "");
  EXPECT_EQ(target_of(""), "");
}

TEST_F(Shown, RemovesDots) {
  EXPECT_EQ(target_of("/sys/class/infiniband/rxe_x/ports/.."), "/sys/class/infiniband/rxe_x");
  EXPECT_EQ(target_of("/sys/class/infiniband/.."), "");
  EXPECT_EQ(target_of("/sys/../../sys/class/infiniband/."), "/sys/class/infiniband/");
}

TEST_F(Shown, LeavesDotsAfterALinkToTheKernel) {
  EXPECT_EQ(target_of("/sys/class/infiniband/rxe_x/link/../1"), "/sys/class/infiniband/rxe_x/link/../1");
  EXPECT_EQ(target_of("/proc/self/../sys/class/infiniband"), "");
}

TEST_F(Shown, StartsFromADescriptor) {
  const int fd = open("/sys/class", O_PATH);
  EXPECT_EQ(target_of("infiniband/rxe_x", fd), "/sys/class/infiniband/rxe_x");
  EXPECT_EQ(target_of("../class/infiniband", fd), "/sys/class/infiniband");
  close(fd);
  EXPECT_EQ(target_of("infiniband/rxe_x", fd), "");
  EXPECT_EQ(target_of("infiniband/rxe_x", -7), "");
}

TEST_F(Shown, StartsFromTheRootDirectory) {
  const int fd = open("/", O_PATH);
  EXPECT_EQ(target_of("dev/infiniband", fd), "/dev/infiniband");
  close(fd);
}

TEST_F(Shown, StartsFromADirectoryThatIsShown) {
  const int fd = open((home_ + "/sys/class/infiniband/rxe_x").c_str(), O_PATH);
  EXPECT_EQ(target_of("ports/1", fd), "/sys/class/infiniband/rxe_x/ports/1");
  EXPECT_EQ(target_of("../rxe_x", fd), "/sys/class/infiniband/rxe_x");
  const ShownPath other(home_.c_str(), fd, "../other/name");
  EXPECT_FALSE(other.shown());
  EXPECT_TRUE(other.replaced());
  EXPECT_STREQ(other.target(), "/sys/class/infiniband/other/name");
  close(fd);
}

// A descriptor of a symbolic link itself is no directory. The path is redirected, so that the kernel reports
// it.
TEST_F(Shown, StartsFromALinkThatIsShown) {
  const int fd = open((home_ + "/sys/class/infiniband/rxe_x/link").c_str(), O_PATH | O_NOFOLLOW);
  EXPECT_EQ(target_of("..", fd), "/sys/class/infiniband/rxe_x/link/..");
  EXPECT_EQ(target_of("../ports", fd), "/sys/class/infiniband/rxe_x/link/../ports");
  close(fd);
}

TEST_F(Shown, IsReplacedWhereItLeavesARoot) {
  const ShownPath where(home_.c_str(), AT_FDCWD, "/sys/class/infiniband/../net/lo");
  EXPECT_FALSE(where.shown());
  EXPECT_TRUE(where.replaced());
  EXPECT_STREQ(where.target(), "/sys/class/net/lo");
  EXPECT_FALSE(ShownPath(home_.c_str(), AT_FDCWD, "/sys/class/net/lo").replaced());
  EXPECT_STREQ(ShownPath(home_.c_str(), AT_FDCWD, "/dev/infiniband/../..").target(), "/");
  EXPECT_STREQ(ShownPath(home_.c_str(), AT_FDCWD, "/dev/infiniband/../../.").target(), "/");
}

TEST_F(Shown, IsNothingWithoutAHome) {
  for (const char* home : {"", "relative", "/missing"}) {
    EXPECT_FALSE(ShownPath(home, AT_FDCWD, "/sys/class/infiniband/rxe_x").shown());
  }
}

TEST_F(Shown, IsNothingForPathsThatDoNotFit) {
  const std::string slashes = "/sys/class/infiniband" + std::string(PATH_MAX - 50, '/') + "rxe_x";
  EXPECT_EQ(target_of(slashes.c_str()), "/sys/class/infiniband/rxe_x");
  EXPECT_EQ(target_of((std::string(50, '/') + slashes).c_str()), "");  // the kernel refuses it
  std::string deep = "/sys/class/infiniband";
  while (deep.size() < 2 * PATH_MAX) deep += "/x";
  EXPECT_EQ(target_of(deep.c_str()), "");
  // Short enough for the kernel, but too long with the home in front of it.
  std::string nearly = "/dev/infiniband/../../sys/class/infiniband/rxe_x/link/../";
  while (nearly.size() + home_.size() < PATH_MAX + 20) nearly += "x/";
  nearly.resize(PATH_MAX - 1);
  const ShownPath where(home_.c_str(), AT_FDCWD, nearly.c_str());
  EXPECT_FALSE(where.shown());
  EXPECT_FALSE(where.replaced()) << where.target();
}

TEST_F(Shown, KeepsErrno) {
  errno = EXDEV;
  target_of("/sys/class/infiniband/missing/../x");
  EXPECT_EQ(errno, EXDEV);
}

// No path made of these pieces leads outside the home or reads out of bounds.
TEST_F(Shown, SurvivesAnyPath) {
  constexpr const char* kPieces[] = {"/",          "//",    ".",
                                     "..",         "sys",   "class",
                                     "infiniband", "rxe_x", "link",
                                     "ports",      "dev",   "/sys/class/infiniband",
                                     "/../",       "x",     "/dev/infiniband"};
  const uint64_t seed = 20240601;
  SCOPED_TRACE(seed);
  Random random(seed);
  int shown = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string path;
    for (uint64_t pieces = random.below(12); pieces > 0; --pieces)
      path += kPieces[random.below(std::size(kPieces))];
    const ShownPath where(home_.c_str(), AT_FDCWD, path.c_str());
    if (!where.shown()) continue;
    ++shown;
    ASSERT_NE(root_of(where.target() + home_.size()), nullptr) << path;
  }
  EXPECT_GT(shown, 100);
}

}  // namespace
}  // namespace verbena::sysfs
