// SPDX-License-Identifier: Apache-2.0
#include "base/spin_lock.h"

#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace verbena {
namespace {

TEST(SpinLock, LetsOneThreadInAtATime) {
  constexpr int kThreads = 4, kRounds = 20000;
  SpinLock lock;
  int count = 0;  // not atomic: a lost addition would show, and the thread sanitizer would report it
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const std::lock_guard holder(lock);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kRounds);
}

TEST(SpinLock, IsNotHadTwice) {
  SpinLock lock;
  EXPECT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock_and_look();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

TEST(SpinLock, GivesUpWhenItsTimeIsOver) {
  SpinLock lock;
  lock.lock();
  const TimePoint begin = MonotonicClock::now();
  EXPECT_FALSE(lock.try_lock_for(std::chrono::milliseconds(2)));
  EXPECT_GE(MonotonicClock::now() - begin, std::chrono::milliseconds(2));
  lock.unlock();
  EXPECT_TRUE(lock.try_lock_for(Duration{}));
  lock.unlock();
}

// The promise of unlock_and_look(): a thread that leaves work and then fails to lock relies on the lock's
// holder to find that work.
TEST(SpinLock, ItsHolderSeesWhatWasLeftForIt) {
  constexpr int kRounds = 20000;
  SpinLock lock;
  std::atomic<int> left{0};
  int done = 0;
  const auto serve = [&] {
    while (left.load() > 0 && lock.try_lock()) {
      done += left.exchange(0);
      lock.unlock_and_look();
    }
  };
  const auto work = [&] {
    for (int round = 0; round < kRounds; ++round) {
      left.fetch_add(1);
      serve();
    }
  };
  std::thread one(work), two(work);
  one.join();
  two.join();
  EXPECT_EQ(left.load(), 0) << "work was left, and nobody looked";
  EXPECT_EQ(done, 2 * kRounds);
}

}  // namespace
}  // namespace verbena
