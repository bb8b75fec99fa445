// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace verbena::test {

// Checks that holds() is true in a child of fork(). A child that hangs is killed after 20 seconds.
inline void expect_in_child(const std::function<bool()>& holds) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // kills a child that hangs
    ::_exit(holds() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Forks repeatedly while another thread of the parent runs `busy`, and checks that holds() is true in each
// child. No lock that the busy thread holds at the fork may stay locked in the child.
inline void expect_in_children_forked_while(const std::function<void()>& busy,
                                            const std::function<bool()>& holds) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer follows no child of a process with threads";
#endif
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) busy();
  });
  for (int i = 0; i < 50; ++i) expect_in_child(holds);
  stop = true;
  other.join();
}

}  // namespace verbena::test
