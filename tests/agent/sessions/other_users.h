// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include <sys/wait.h>
#include <unistd.h>

namespace verbena::test {

// Runs `work` in a child and returns its exit status.
inline int as_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Runs `work` in a child as this user and returns its exit status; 99 if it cannot become the user.
inline int as_user(uid_t uid, const std::function<int()>& work) {
  return as_child([&] { return ::setgid(uid) == 0 && ::setuid(uid) == 0 ? work() : 99; });
}

inline bool may_become_others() {
  return as_user(65534, [] { return 0; }) == 0;
}

}  // namespace verbena::test
