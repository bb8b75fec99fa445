// SPDX-License-Identifier: Apache-2.0
#include "base/paths/users.h"

#include <csignal>
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

#include "base/paths/state_path.h"

namespace verbena::paths {
namespace {

constexpr uid_t kUser = 3999999995;
constexpr uid_t kOther = 3999999994;
constexpr uid_t kContainer = 3999000000;  // its users are kContainer and the next 65,535 UIDs
constexpr uid_t kNobody = 65534;
constexpr int kNoNamespaces = 77;

// Runs `body` in a child with the UID kUser in a user namespace. If `mapped`, the namespace shows kUser as
// root (`unshare -Ur`); otherwise kUser has no number there (`unshare -U`). `prepare` runs before, as root,
// and may set up file systems.
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
    prctl(PR_SET_DUMPABLE, 1);  // makes the user owner of /proc/self again
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

// Enters a user namespace of 65,536 users as its root.
bool enter_container() {
  int asked[2], done[2];
  if (pipe(asked) != 0 || pipe(done) != 0) return false;
  const pid_t container = getpid();
  if (const pid_t mapper = fork();
      mapper == 0) {  // runs outside the namespace: only root there may map that many users
    char byte;
    close(asked[1]);  // so that read() ends if the process cannot enter
    if (read(asked[0], &byte, 1) != 1) _exit(1);
    const std::string process = "/proc/" + std::to_string(container);
    std::ofstream(process + "/uid_map") << "0 " << kContainer << " 65536";
    std::ofstream(process + "/gid_map") << "0 " << kContainer << " 65536";
    _exit(write(done[1], &byte, 1) == 1 ? 0 : 1);
  }
  char byte = 0;
  if (unshare(CLONE_NEWUSER) != 0 || write(asked[1], &byte, 1) != 1 || read(done[0], &byte, 1) != 1)
    return false;
  return setresgid(0, 0, 0) == 0 && setresuid(0, 0, 0) == 0;
}

// Starts a process of this user, which ends when we close the pipe that it reads.
pid_t process_of(uid_t user) {
  int ready[2], held[2];
  if (pipe(ready) != 0 || pipe2(held, O_CLOEXEC) != 0) return -1;
  const pid_t process = fork();
  char byte = 0;
  if (process == 0) {
    close(held[1]);
    // Makes the process dumpable, as a program that the user has started. After setresuid() alone, /proc
    // would not show it to other processes of the user.
    if (setresuid(user, user, user) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0 || write(ready[1], &byte, 1) != 1)
      _exit(1);
    _exit(read(held[0], &byte, 1) == 0 ? 0 : 1);
  }
  close(ready[1]);
  close(held[0]);
  const bool is_there = read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  return is_there ? process : -1;
}

int as_root_of_a_container() {
  const pid_t stranger = process_of(kUser);
  if (stranger < 0 || !enter_container()) return kNoNamespaces;
  const pid_t nobody = process_of(kNobody);
  int wrong = 0;
  if (!is_ambiguous(kNobody)) wrong = 2;
  if (!has_number({.pid = nobody, .shown = kNobody})) wrong = 3;
  if (has_number({.pid = stranger, .shown = kNobody})) wrong = 4;
  // As `nobody` of the container. Only the kernel's credentials tell which processes belong to `nobody`.
  if (setresuid(kNobody, kNobody, kNobody) != 0) wrong = 5;
  if (!is_own_users({.pid = nobody, .shown = kNobody})) wrong = 6;
  if (is_own_users({.pid = stranger, .shown = kNobody})) wrong = 7;
  if (shown_as(kNobody) != static_cast<uid_t>(-1)) wrong = 8;
  return wrong;
}

TEST(Users, AreThemselvesOutsideOfUserNamespaces) {
  EXPECT_EQ(own_user(), geteuid());
  EXPECT_EQ(shown_as(12345), 12345u);
  EXPECT_FALSE(is_ambiguous(65534));
  EXPECT_FALSE(is_unmapped_roots("/run"));
  EXPECT_TRUE(is_own_users({.pid = getpid(), .shown = geteuid()}));
  EXPECT_FALSE(is_own_users({.pid = getpid(), .shown = geteuid() + 1}));
}

TEST(Users, AreWhoTheyAreOutsideWhereTheyAreShownAsRoot) {
  in_user_namespace(
      true, [] {},
      [] {
        if (geteuid() != 0) return 2;
        if (own_user() != kUser) return 3;
        if (shown_as(kUser) != 0) return 4;
        if (!is_ambiguous(65534)) return 5;
        return is_ambiguous(0) ? 6 : 0;
      });
}

// A user who owns /run and is shown as root, as in a container.
TEST(Users, AreRootWhereTheyOwnRun) {
  in_user_namespace(
      true, [] { chown("/run", kUser, kUser); }, [] { return own_user() == 0 ? 0 : 2; });
}

// Root of a container whose users all have numbers, `nobody` included. Strangers are shown as `nobody`, too.
TEST(Users, OfAContainerAreNotTakenForStrangersWithoutANumber) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may map other users";
  const pid_t child = fork();
  if (child == 0) _exit(as_root_of_a_container());
  int status = 0;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == kNoNamespaces) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(status, 0) << "exit status " << WEXITSTATUS(status);
}

// All users without a number in the namespace look the same, so none of them is trusted.
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
        if (!is_own_users({.pid = getpid(), .shown = geteuid()})) return 5;
        return is_own_users({.pid = getppid(), .shown = geteuid()})
                   ? 6
                   : 0;  // owned by root, which is shown the same
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
        // Any user could have created this directory: its owner is shown as root is.
        if (is_private_directory("/run/open/verbena", 0)) return 3;
        if (is_private_directory("/run/writable", 0)) return 4;
        if (is_private_directory("/run/link", 0)) return 5;
        return is_private_directory("/tmp", 0) ? 6 : 0;
      });
}

// A user who may write to /run is trusted. Only root can have given a directory in /run to another user.
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
