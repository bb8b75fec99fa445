// SPDX-License-Identifier: Apache-2.0
#include "base/pidfd.h"

#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace verbena {
namespace {

UniqueFd open_pidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

TEST(Pidfd, TellsThePid) {
  const UniqueFd ours = open_pidfd(::getpid());
  EXPECT_EQ(pid_of(ours.get()), ::getpid());
  EXPECT_EQ(pidfd_field(ours.get(), "Pid"), std::to_string(::getpid()));
  EXPECT_EQ(pidfd_field(ours.get(), "NoSuchField"), "");
}

TEST(Pidfd, OfAnEndedProcessTellsNone) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  const UniqueFd pidfd = open_pidfd(child);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(pid_of(pidfd.get()), 0);
}

// The kernel writes them before the pid, and anybody can set some.
TEST(Pidfd, TellsThePidBehindManyFileLocks) {
  const UniqueFd ours = open_pidfd(::getpid());
  for (off_t i = 0; i < 500; ++i) {
    struct flock lock {};
    lock.l_type = F_RDLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = 2 * i;
    lock.l_len = 1;
    ASSERT_EQ(::fcntl(ours.get(), F_SETLK, &lock), 0);
  }
  EXPECT_EQ(pid_of(ours.get()), ::getpid());
}

TEST(Pidfd, IsNoOtherDescriptor) {
  EXPECT_EQ(pid_of(STDIN_FILENO), 0);
  EXPECT_EQ(pid_of(-1), 0);
}

}  // namespace
}  // namespace verbena
