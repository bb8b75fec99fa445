// SPDX-License-Identifier: Apache-2.0
#include "base/section_lock.h"

#include <latch>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace verbena {
namespace {

void await_sleepers(const SectionLock& lock, uint32_t count) {
  while (lock.waiting() < count) std::this_thread::yield();
}

TEST(SectionLock, IsHadByOneAtATime) {
  SectionLock lock;
  EXPECT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

TEST(SectionLock, GivesUpWhenItCannotBeHadInTime) {
  SectionLock lock;
  lock.lock();
  EXPECT_FALSE(lock.try_lock_for(std::chrono::microseconds(10)));
  lock.unlock();
  EXPECT_TRUE(lock.try_lock_for(std::chrono::microseconds(10)));
  lock.unlock();
}

TEST(SectionLock, GuardsACountAgainstManyThreads) {
  constexpr int kThreads = 64;
  constexpr int kRounds = 500;
  SectionLock lock;
  int count = 0;
  std::latch begin(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      begin.arrive_and_wait();
      for (int i = 0; i < kRounds; ++i) {
        if (t % 2 == 0) {
          lock.lock();
        } else {
          while (!lock.try_lock()) std::this_thread::yield();
        }
        ++count;
        lock.unlock_and_look();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kRounds);
  EXPECT_EQ(lock.waiting(), 0u);
  EXPECT_TRUE(lock.try_lock()) << "nobody has claimed it who is gone";
}

TEST(SectionLock, WakesAllWhoSleepOneAfterTheOther) {
  constexpr uint32_t kSleepers = 20;
  SectionLock lock;
  lock.lock();
  int sections = 0;
  std::vector<std::thread> sleepers;
  for (uint32_t i = 0; i < kSleepers; ++i) {
    sleepers.emplace_back([&] {
      const std::lock_guard guard(lock);
      ++sections;
    });
  }
  await_sleepers(lock, kSleepers);
  lock.unlock();
  for (std::thread& sleeper : sleepers) sleeper.join();
  EXPECT_EQ(sections, static_cast<int>(kSleepers));
}

// Pollers that only try_lock() take the lock again and again. A thread that calls lock() gets it all the
// same.
TEST(SectionLock, IsHadByOneWhoWaitsThoughOthersNeverLeaveItAlone) {
  SectionLock lock;
  std::atomic<bool> stop{false};
  std::vector<std::thread> pollers;
  for (int i = 0; i < 3; ++i) {
    pollers.emplace_back([&] {
      while (!stop) {
        if (!lock.try_lock()) continue;
        for (int j = 0; j < 1000; ++j) cpu_relax();
        lock.unlock_and_look();
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    lock.lock();
    lock.unlock();
  }
  stop = true;
  for (std::thread& poller : pollers) poller.join();
}

TEST(SectionLock, IsNotAwaitedWhileItIsFree) {
  SectionLock lock;
  lock.await_section();
  lock.lock();
  lock.unlock();
  lock.await_section();
}

TEST(SectionLock, IsAwaitedUntilTheSectionThatWasOpenEnds) {
  SectionLock lock;
  std::atomic<bool> over{false};
  lock.lock();
  std::thread waiter([&] {
    lock.await_section();
    EXPECT_TRUE(over);
  });
  over = true;
  lock.unlock();
  waiter.join();
}

// await_section() returns although the next section begins at once.
TEST(SectionLock, IsNotAwaitedBeyondThatSection) {
  SectionLock lock;
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    lock.lock();
    while (!stop) {
      lock.unlock();
      lock.lock();
    }
    lock.unlock();
  });
  for (int i = 0; i < 1000; ++i) lock.await_section();
  stop = true;
  busy.join();
}

TEST(SectionLock, IsFreeInAChildThoughItWasHeld) {
  SectionLock lock;
  lock.lock();
  lock.free_in_child();
  lock.await_section();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
  EXPECT_EQ(lock.waiting(), 0u);
}

}  // namespace
}  // namespace verbena
