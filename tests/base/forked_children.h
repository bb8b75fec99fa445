// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace verbena::test {

// In a child of fork() holds() must be true, within seconds.
inline void expect_in_child(const std::function<bool()>& holds) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // ends a child that hangs
    ::_exit(holds() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Forks again and again while another thread of the parent does `busy`. In each child holds() must be true:
// no lock that the busy thread had at that moment may stay taken there.
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
