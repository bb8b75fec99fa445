// SPDX-License-Identifier: Apache-2.0
#include "base/mutex_at_fork.h"

#include <latch>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "base/forked_children.h"

namespace verbena {
namespace {

void take(MutexAtFork& mutex) {
  const std::lock_guard guard(mutex);
}

TEST(MutexAtFork, IsFreeInAChild) {
  MutexAtFork one;
  MutexAtFork other;
  test::expect_in_children_forked_while(
      [&] {
        take(one);
        take(other);
      },
      [&] {
        take(one);
        take(other);
        return true;
      });
}

TEST(MutexAtFork, IsFreeInAChildAlsoWhenAThreadOfItsParentKeepsIt) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer follows no child of a process with threads";
#endif
  MutexAtFork mutex;
  std::latch is_taken(1);
  std::latch is_over(1);
  std::thread keeper([&] {
    const std::lock_guard guard(mutex);
    is_taken.count_down();
    is_over.wait();
  });
  is_taken.wait();
  test::expect_in_child([&] {
    take(mutex);
    return true;
  });
  is_over.count_down();
  keeper.join();
  take(mutex);  // the parent can lock it as before
}

TEST(MutexAtFork, OneThatIsGoneIsNotWaitedFor) {
  { MutexAtFork gone; }
  test::expect_in_child([] { return true; });
}

}  // namespace
}  // namespace verbena
