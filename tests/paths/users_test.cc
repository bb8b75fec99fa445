// SPDX-License-Identifier: Apache-2.0
#include "paths/users.h"

#include <fstream>
#include <functional>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "paths/state_path.h"

namespace verbena::paths {
namespace {

constexpr uid_t kUser = 3999999995;
constexpr uid_t kOther = 3999999994;
constexpr int kNoNamespaces = 77;

// Runs in a child that is `user` and has entered a user namespace in which it is shown as root (`unshare
// -Ur`), or without a number of its own (`unshare -U`). Before, as root, it may prepare its file systems.
void in_user_namespace(bool mapped, const std::function<void()>& prepare, const std::function<int()>& body) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      _exit(kNoNamespaces);
    }
    mount("none", "/run", "tmpfs", 0, "mode=755");
    prepare();
    if (setresgid(kUser, kUser, kUser) != 0 || setresuid(kUser, kUser, kUser) != 0) _exit(1);
    prctl(PR_SET_DUMPABLE, 1);  // /proc/self is the user's own again
    if (unshare(CLONE_NEWUSER) != 0) _exit(kNoNamespaces);
    if (mapped) {
      std::ofstream("/proc/self/setgroups") << "deny";
      std::ofstream("/proc/self/uid_map") << "0 " << kUser << " 1";
      std::ofstream("/proc/self/gid_map") << "0 " << kUser << " 1";
    }
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == kNoNamespaces) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(status, 0) << "exit status " << WEXITSTATUS(status);
}

TEST(Users, AreThemselvesOutsideOfUserNamespaces) {
  EXPECT_EQ(own_user(), geteuid());
  EXPECT_EQ(shown_as(12345), 12345u);
  EXPECT_FALSE(is_unmapped(65534));
  EXPECT_FALSE(is_unmapped_roots("/run"));
  EXPECT_TRUE(is_own_users(getpid(), geteuid()));
  EXPECT_FALSE(is_own_users(getpid(), geteuid() + 1));
}

TEST(Users, AreWhoTheyAreOutsideWhereTheyAreShownAsRoot) {
  in_user_namespace(
      true, [] {},
      [] {
        if (geteuid() != 0) return 2;
        if (own_user() != kUser) return 3;
        if (shown_as(kUser) != 0) return 4;
        if (!is_unmapped(65534)) return 5;
        return is_unmapped(0) ? 6 : 0;
      });
}

// Like root of a container.
TEST(Users, AreRootWhereTheyOwnRun) {
  in_user_namespace(
      true, [] { chown("/run", kUser, kUser); }, [] { return own_user() == 0 ? 0 : 2; });
}

// Everybody without a number is shown the same: nobody is trusted for it.
TEST(Users, WithoutANumberHaveNothingOfTheirOwn) {
  in_user_namespace(
      false,
      [] {
        mkdir("/run/of-user", 0700);
        chown("/run/of-user", kUser, kUser);
      },
      [] {
        if (geteuid() != 65534) return 2;
        if (shown_as(own_user()) != static_cast<uid_t>(-1)) return 3;
        if (is_private_directory("/run/of-user", own_user())) return 4;
        if (!is_own_users(getpid(), geteuid())) return 5;
        return is_own_users(getppid(), geteuid()) ? 6 : 0;  // root's, who is shown the same
      });
}

TEST(Users, KnowRootsDirectoryByItsPlace) {
  in_user_namespace(
      true,
      [] {
        mkdir("/run/verbena", 0755);
        mkdir("/run/open", 0777);
        chmod("/run/open", 0777);
        mkdir("/run/open/verbena", 0755);
        mkdir("/run/writable", 0755);
        chmod("/run/writable", 0775);
        symlink("/run/verbena", "/run/link");
      },
      [] {
        if (!is_private_directory("/run/verbena", 0)) return 2;
        // Any user could have put it there, and is shown as root is.
        if (is_private_directory("/run/open/verbena", 0)) return 3;
        if (is_private_directory("/run/writable", 0)) return 4;
        if (is_private_directory("/run/link", 0)) return 5;
        return is_private_directory("/tmp", 0) ? 6 : 0;
      });
}

// A user who may write to /run is trusted; a directory that somebody else owns there was given to them by
// root.
TEST(Users, DoNotTakeAnothersDirectoryForTheirOwn) {
  in_user_namespace(
      true,
      [] {
        mkdir("/run/of-other", 0700);
        chown("/run/of-other", kOther, kOther);
      },
      [] { return is_private_directory("/run/of-other", own_user()) ? 2 : 0; });
}

}  // namespace
}  // namespace verbena::paths
