// SPDX-License-Identifier: Apache-2.0
#include "base/paths/state_directory.h"

#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/paths/state_path.h"

namespace verbena::paths {
namespace {

namespace fs = std::filesystem;
using testing::Optional;

std::string namespace_inode() {
  struct stat status;
  stat("/proc/self/ns/net", &status);
  return std::to_string(status.st_ino);
}

class StateDirectory : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/verbena-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    unsetenv("VERBENA_SYS_DIR");
  }
  void TearDown() override {
    unsetenv("VERBENA_SYS_DIR");
    fs::remove_all(directory_);
  }
  fs::path directory_;
};

TEST_F(StateDirectory, OfRootLiesInRun) {
  EXPECT_EQ(state_directory_for(0), "/run/verbena/" + namespace_inode());
}

TEST_F(StateDirectory, OfAUserWithoutRuntimeDirectoryLiesInTmp) {
  EXPECT_EQ(state_directory_for(123456), "/tmp/verbena-123456/" + namespace_inode());
}

TEST_F(StateDirectory, IsTheOneThatTheEnvironmentNames) {
  setenv("VERBENA_SYS_DIR", directory_.c_str(), 1);
  EXPECT_THAT(find_state_directory(), Optional(directory_.string()));
}

TEST_F(StateDirectory, IsNoneWhenTheEnvironmentNamesNothingUsable) {
  for (const char* name : {"", "relative", "/nonexistent", "/etc/passwd"}) {
    setenv("VERBENA_SYS_DIR", name, 1);
    EXPECT_EQ(find_state_directory(), std::nullopt) << name;
  }
}

TEST_F(StateDirectory, IsTrustedOnlyWhenNoOtherUserCouldWrite) {
  EXPECT_TRUE(is_trusted_directory(directory_.c_str()));
  for (fs::perms open : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(directory_, fs::perms::owner_all | open);
    EXPECT_FALSE(is_trusted_directory(directory_.c_str()));
  }
  fs::permissions(directory_, fs::perms::owner_all);
  const fs::path link = directory_ / "link";
  fs::create_directory_symlink("/usr", link);
  EXPECT_FALSE(is_trusted_directory(link.c_str()));
  EXPECT_FALSE(is_trusted_directory((directory_ / "missing").c_str()));
}

TEST_F(StateDirectory, OfAnotherUserIsNotTrusted) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  ASSERT_EQ(chown(directory_.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(is_trusted_directory(directory_.c_str()));
}

// Runs under a UID that no user of the machine has, so that no directory of the machine is touched.
TEST_F(StateDirectory, IsMadeAndFoundAgain) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t kNobodysUid = 3999999997;
  const fs::path home = "/tmp/verbena-" + std::to_string(kNobodysUid);
  ASSERT_FALSE(fs::exists(home));
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(kNobodysUid, kNobodysUid, kNobodysUid) != 0) _exit(1);
    umask(0);
    const Result<std::string> made = make_state_directory();
    if (!made || *made != home / namespace_inode()) _exit(2);
    struct stat status;
    if (stat(made->c_str(), &status) != 0 || (status.st_mode & 0777) != 0700) _exit(3);
    if (make_state_directory() != made) _exit(4);
    const auto found = find_state_directory();  // finds the directory of a root agent of this machine first
    if (found != *made && !(found && found->starts_with("/run/verbena/"))) _exit(5);
    chmod(made->c_str(), 0770);
    if (const auto again = make_state_directory(); again || again.error().code != EPERM) _exit(6);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "exit status " << WEXITSTATUS(status);
  fs::remove_all(home);
}

// Another user can create the usual one in /tmp, and nobody but root can remove it from there.
TEST_F(StateDirectory, WhoseNameAnotherUserHasTakenIsMadeByADrawnName) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t kNobodysUid = 3999999994;
  const std::string home = "/tmp/verbena-" + std::to_string(kNobodysUid);
  ASSERT_TRUE(fs::create_directory(home));
  ASSERT_EQ(chown(home.c_str(), 12345, 12345), 0);
  const std::string of_a_stranger = home + "-0000000000000001";
  ASSERT_TRUE(fs::create_directory(of_a_stranger));
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(kNobodysUid, kNobodysUid, kNobodysUid) != 0) _exit(1);
    const Result<std::string> made = make_state_directory();
    if (!made || !made->starts_with(home + "-") || made->starts_with(of_a_stranger)) _exit(2);
    if (make_state_directory() != made) _exit(3);
    if (!agent_socket_path(kNobodysUid).view().starts_with(*made)) _exit(4);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "exit status " << WEXITSTATUS(status);
  fs::remove_all(home);  // as the other user may do at any time
  const pid_t later = fork();
  if (later == 0) {
    if (setresuid(kNobodysUid, kNobodysUid, kNobodysUid) != 0) _exit(1);
    const Result<std::string> made = make_state_directory();
    if (!made || !made->starts_with(home + "-") || made->starts_with(of_a_stranger)) _exit(2);
    fs::remove_all(fs::path(*made).parent_path());
    _exit(0);
  }
  waitpid(later, &status, 0);
  EXPECT_EQ(status, 0) << "exit status " << WEXITSTATUS(status);
  fs::remove_all(home);
  fs::remove_all(of_a_stranger);
}

// Runs in a network namespace of its own, first as root and then as an ordinary user.
TEST_F(StateDirectory, OfRootGoesFirstUntilItsAgentIsGone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t kNobodysUid = 3999999996;
  const fs::path home = "/tmp/verbena-" + std::to_string(kNobodysUid);
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0) _exit(77);
    const Result<std::string> roots = make_state_directory();
    if (!roots) _exit(1);
    // Namespace numbers are reused. An agent killed in an earlier namespace of this number has left its mark.
    fs::remove(*roots + "/in_use");
    if (setresuid(kNobodysUid, kNobodysUid, 0) != 0) _exit(2);
    const auto own = make_state_directory();
    int failed = own ? 0 : 3;
    if (find_state_directory() != *roots) failed = 4;  // a directory of an older release: has no mark
    const auto as_root = [](auto work) {
      if (setresuid(0, 0, 0) != 0) _exit(5);
      auto result = work();
      if (setresuid(kNobodysUid, kNobodysUid, 0) != 0) _exit(6);
      return result;
    };
    {
      const auto mark = as_root([&] { return mark_in_use(*roots); });
      if (!mark || find_state_directory() != *roots) failed = 7;
    }
    if (find_state_directory() != *own) failed = 8;
    fs::remove_all(*own);
    if (find_state_directory() != *roots) failed = 9;  // used when there is no other
    as_root([&] { return fs::remove_all(*roots); });
    _exit(failed);
  }
  int status = 0;
  waitpid(child, &status, 0);
  fs::remove_all(home);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no network namespace can be made";
  EXPECT_EQ(status, 0) << "exit status " << WEXITSTATUS(status);
}

// The situation in a container that does not see its agent's directory.
TEST_F(StateDirectory, IsAMirrorsWhereNoAgentShowsItself) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t kNobodysUid = 3999999995;
  const fs::path home = "/tmp/verbena-" + std::to_string(kNobodysUid);
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0) _exit(77);
    if (setresuid(kNobodysUid, kNobodysUid, 0) != 0) _exit(2);
    const auto mirror = make_mirror_directory();
    if (!mirror || *mirror != (home / namespace_inode()).string() + "-mirror") _exit(3);
    // The mirror is not complete yet. Namespace numbers are reused, so the directory may be a leftover.
    if (find_state_directory() == *mirror || state_is_shown_by() != ShownBy::kNobody) _exit(4);
    const auto mark = mark_in_use(*mirror);
    if (!mark || find_state_directory() != *mirror || state_is_shown_by() != ShownBy::kMirror) _exit(5);
    const auto own = make_state_directory();
    if (!own) _exit(6);
    {
      const auto agents = mark_in_use(*own);
      if (!agents || find_state_directory() != *own || state_is_shown_by() != ShownBy::kAgent) _exit(7);
    }
    if (find_state_directory() != *mirror) _exit(8);  // the agent has ended
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  fs::remove_all(home);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no network namespace can be made";
  EXPECT_EQ(status, 0) << "exit status " << WEXITSTATUS(status);
}

TEST(PathText, GrowsUntilItDoesNotFit) {
  PathText path("/a");
  path.add("/b").add_number(0).add_number(18446744073709551615ull);
  EXPECT_EQ(path.view(), "/a/b018446744073709551615");
  EXPECT_TRUE(path.valid());
  const std::string filler(PathText::capacity() - path.view().size(), 'x');
  EXPECT_TRUE(path.add(filler).valid());
  EXPECT_EQ(path.view().size(), PathText::capacity());
  EXPECT_FALSE(path.add("y").valid());
}

}  // namespace
}  // namespace verbena::paths
