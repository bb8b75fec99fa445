// SPDX-License-Identifier: Apache-2.0
#include "base/paths/root_only.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace verbena::paths {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uid_t kUser = 3999999995;
constexpr int kNoPrivilege = 77;

// A file system owned by root. An ordinary user makes it in a user namespace, where the test runs as root.
class RootOnly : public testing::Test {
 protected:
  void SetUp() override {
    if (why_not("/") == "no privilege") GTEST_SKIP() << "neither root nor user namespaces here";
    fs::create_directories(root_ / "opt/verbena/lib");
    std::ofstream(root_ / "opt/verbena/lib/libibverbs.so.1") << "x";
    fs::create_directories(root_ / "srv/theirs");
    std::ofstream(root_ / "srv/theirs/lib.so") << "x";
  }
  ~RootOnly() override { fs::remove_all(root_); }

  // Returns the fault that was found; empty if none.
  std::string why_not(const std::string& path) const {
    int ends[2];
    if (::pipe(ends) != 0) return "no pipe";
    const pid_t child = ::fork();
    if (child == 0) ::_exit(look(path, ends[1]));
    ::close(ends[1]);
    std::string text(4096, '\0');
    const ssize_t length = ::read(ends[0], text.data(), text.size());
    text.resize(length > 0 ? static_cast<size_t>(length) : 0);
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoPrivilege) return "no privilege";
    return status == 0 ? text : "the child has crashed";
  }
  bool give(const fs::path& path, uid_t user) const {
    return ::lchown((root_ / path).c_str(), user, user) == 0;
  }
  void allow(const fs::path& path, unsigned mode) const {
    fs::permissions(root_ / path, static_cast<fs::perms>(mode));
  }

  static constexpr const char* kLib = "/opt/verbena/lib/libibverbs.so.1";
  const fs::path root_ = [] {
    std::string name = testing::TempDir() + "root_only_test_XXXXXX";
    const fs::path made = ::mkdtemp(name.data());
    fs::permissions(made, static_cast<fs::perms>(0755));
    return made;
  }();

 private:
  int look(const std::string& path, int answer) const {
    const uid_t uid = ::geteuid();
    if (uid != 0) {
      if (::unshare(CLONE_NEWUSER) != 0) return kNoPrivilege;
      std::ofstream("/proc/self/uid_map") << "0 " << uid << " 1";
    }
    if (::chroot(root_.c_str()) != 0 || ::chdir("/") != 0) return kNoPrivilege;
    const auto found = find_changeable(path);
    const std::string text = found ? found->why() : "";
    return ::write(answer, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1;
  }
};

TEST_F(RootOnly, FindsNothingWhereOnlyRootCanWrite) {
  EXPECT_THAT(why_not(kLib), IsEmpty());
  EXPECT_THAT(why_not("/opt/./verbena//lib/../lib/libibverbs.so.1"), IsEmpty());
}

TEST_F(RootOnly, FindsNothingWhereTheFileIsMissingAndOnlyRootCanMakeIt) {
  EXPECT_THAT(why_not("/opt/verbena/none/file"), IsEmpty());
  allow("opt/verbena", 0777);
  EXPECT_THAT(why_not("/opt/verbena/none/file"), HasSubstr("'/opt/verbena'"));
}

TEST_F(RootOnly, FindsAFileThatOthersMayWrite) {
  for (const unsigned mode : {0664u, 0646u}) {
    allow("opt/verbena/lib/libibverbs.so.1", mode);
    EXPECT_THAT(why_not(kLib), HasSubstr("chmod go-w '/opt/verbena/lib/libibverbs.so.1'")) << mode;
  }
}

TEST_F(RootOnly, FindsEachFolderAboveThatOthersMayWrite) {
  for (const char* folder : {"opt/verbena/lib", "opt/verbena", "opt", ""}) {
    allow(folder, 0775);
    EXPECT_THAT(why_not(kLib), HasSubstr(std::string("'/") + folder + "'"));
    allow(folder, 0755);
  }
}

TEST_F(RootOnly, AStickyFolderIsNoBetter) {
  allow("opt", 01777);
  EXPECT_THAT(why_not(kLib), HasSubstr("may write to '/opt' (mode 1777"));
}

TEST_F(RootOnly, FindsWhatBelongsToOthers) {
  if (!give("opt", kUser)) GTEST_SKIP() << "only root can give files to others";
  EXPECT_THAT(why_not(kLib), HasSubstr("'/opt' belongs to user 3999999995"));
  give("opt", 0);
  give("opt/verbena/lib/libibverbs.so.1", kUser);
  EXPECT_THAT(why_not(kLib), HasSubstr("'/opt/verbena/lib/libibverbs.so.1' belongs to user 3999999995"));
}

TEST_F(RootOnly, FollowsLinksToAllThatLeadsToTheirTarget) {
  fs::create_symlink("/srv/theirs", root_ / "opt/verbena/absolute");
  fs::create_symlink("../../srv/theirs/lib.so", root_ / "opt/verbena/relative.so");
  EXPECT_THAT(why_not("/opt/verbena/absolute/lib.so"), IsEmpty());
  EXPECT_THAT(why_not("/opt/verbena/relative.so"), IsEmpty());
  for (const char* changeable : {"srv", "srv/theirs", "srv/theirs/lib.so"}) {
    allow(changeable, 0777);
    EXPECT_THAT(why_not("/opt/verbena/absolute/lib.so"), HasSubstr(std::string("'/") + changeable + "'"));
    EXPECT_THAT(why_not("/opt/verbena/relative.so"), HasSubstr(std::string("'/") + changeable + "'"));
    allow(changeable, 0755);
  }
}

TEST_F(RootOnly, FindsALinkOfAnotherUser) {
  fs::create_symlink("/srv/theirs", root_ / "opt/link");
  if (!give("opt/link", kUser)) GTEST_SKIP() << "only root can give files to others";
  EXPECT_THAT(why_not("/opt/link/lib.so"), HasSubstr("'/opt/link' belongs to user"));
}

TEST_F(RootOnly, LinksWithoutEndAreAFault) {
  fs::create_symlink("/opt/b", root_ / "opt/a");
  fs::create_symlink("/opt/a", root_ / "opt/b");
  EXPECT_THAT(why_not("/opt/a"), HasSubstr("cannot be checked"));
}

}  // namespace
}  // namespace verbena::paths
