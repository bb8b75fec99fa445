// SPDX-License-Identifier: Apache-2.0
#include "agent/event_loop.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/paced_task.h"
#include "base/unique_fd.h"

namespace {

// The number of allocations of this thread that succeed before the others fail. Negative: all succeed.
thread_local int allocations_left = -1;
thread_local int epoll_error = 0;  // the error of this thread's next epoll_ctl(2), unless 0

}  // namespace

extern "C" int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
  if (epoll_error == 0) return static_cast<int>(::syscall(SYS_epoll_ctl, epoll, operation, fd, event));
  errno = std::exchange(epoll_error, 0);
  return -1;
}

[[gnu::noinline]] void* operator new(size_t bytes) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
// AddressSanitizer compares the kinds of new and delete, so all of this kind are replaced.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace verbena::agent {
namespace {

// Calls work() with memory for no allocation, for one, for two and so on, until it needs no more, and then()
// with memory enough after each call. Returns the number of calls.
template <class Work, class Then>
int with_little_memory(const Work& work, const Then& then) {
  for (int most = 0;; ++most) {
    allocations_left = most;
    work();
    const bool was_enough = allocations_left > 0;
    allocations_left = -1;
    then();
    if (was_enough) return most + 1;
  }
}

TEST(EventLoop, ATimerThatComesDueMeanwhileWaitsForTheNextRound) {
  EventLoop loop;
  int runs = 0;
  constexpr int kTooMany = 100;
  // A timer whose work takes longer than its interval.
  const std::function<void()> work = [&] {
    if (++runs < kTooMany) loop.at(MonotonicClock::now(), work);
  };
  loop.at(MonotonicClock::now(), work);
  const UniqueFd somebody(::eventfd(1, EFD_CLOEXEC));
  int served = 0;
  loop.watch(somebody.get(), EPOLLIN, [&](uint32_t) { ++served; });
  for (int round = 1; round <= 3; ++round) {
    loop.run_round();
    EXPECT_EQ(served, round);
    EXPECT_LE(runs, round);
  }
  loop.run_round();
  EXPECT_GE(runs, 2) << "it has its turn, too";
  loop.forget(somebody.get());
}

TEST(EventLoop, GoesOnWhereThereIsNoMemoryForAPieceOfWork) {
  EventLoop loop(std::chrono::hours(1));
  std::string order;
  const auto fail = [] { throw std::bad_alloc(); };
  const UniqueFd event(::eventfd(1, EFD_CLOEXEC));
  loop.watch(event.get(), EPOLLIN, [&](uint32_t) { fail(); });
  for (int i = 0; i < 2; ++i) {
    loop.at(MonotonicClock::now(), fail);
    loop.at(MonotonicClock::now(), [&] { order += 't'; });
    loop.later(fail);
    loop.later([&] { order += 'l'; });
    loop.in_next_round(fail);
    loop.in_next_round([&] { order += 'n'; });
    loop.run_round();
  }
  EXPECT_EQ(order, "ntlntl");
  loop.forget(event.get());
}

TEST(EventLoop, HandlesAnEventAgainForWhichThereWasNoMemory) {
  EventLoop loop(std::chrono::hours(1));
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  int served = 0;
  loop.watch_for(1, event.get(), EPOLLIN, [&](uint32_t events) {
    const auto memory = std::make_unique<int>(1);
    EXPECT_NE(events & EPOLLIN, 0u);
    eventfd_t count;
    served += ::eventfd_read(event.get(), &count) == 0 ? *memory : 0;
    return false;
  });
  int events = 0;
  const int calls = with_little_memory(
      [&] {
        ::eventfd_write(event.get(), 1);
        ++events;
        loop.run_round();
      },
      [&] {
        while (served < events) loop.run_round();
      });
  EXPECT_GT(calls, 1);
  loop.forget(event.get());
}

TEST(EventLoop, KernelWithoutMemoryIsLackOfMemory) {
  EventLoop loop;
  const UniqueFd event(::eventfd(1, EFD_CLOEXEC));
  int served = 0;
  const auto serve = [&](uint32_t) { ++served; };
  for (const int error : {ENOMEM, ENOSPC}) {
    epoll_error = error;
    EXPECT_THROW(loop.watch(event.get(), EPOLLIN, serve), std::bad_alloc);
  }
  epoll_error = EPERM;
  EXPECT_THROW(loop.watch(event.get(), EPOLLIN, serve), std::system_error);
  loop.watch(event.get(), EPOLLIN, serve);
  loop.run_round();
  EXPECT_EQ(served, 1);
  loop.forget(event.get());
}

TEST(EventLoop, QueuedTaskNeedsNoMemoryAndRunsOnceInARound) {
  EventLoop loop;
  int runs = 0;
  EventLoop::QueuedTask task(loop, [&] { ++runs; });
  loop.in_next_round([] {});
  allocations_left = 0;
  task.queue();
  task.queue();
  loop.run_round();
  allocations_left = -1;
  EXPECT_EQ(runs, 1);
}

TEST(EventLoop, QueuedTaskForWhichThereIsNoMemoryRunsAgain) {
  EventLoop loop;
  int runs = 0;
  EventLoop::QueuedTask task(loop, [&] {
    if (++runs == 1) throw std::bad_alloc();
  });
  loop.in_next_round([] {});
  task.queue();
  loop.run_round();
  EXPECT_EQ(runs, 1);
  loop.run_round();  // nothing else wakes the loop
  EXPECT_EQ(runs, 2);
}

TEST(UserTurns, PieceForWhichThereIsNoMemoryChangesNothing) {
  TimePoint time{};
  UserTurns turns([&] { return time += UserTurns::kQuantum; });
  int runs = 0, added = 0;
  uid_t user = 0;
  const int calls = with_little_memory(
      [&] {
        try {
          turns.add(user, [&, left = 2]() mutable {
            ++runs;
            return --left != 0;
          });
          ++added;
        } catch (const std::bad_alloc&) {
        }
      },
      [&] {
        while (!turns.empty()) turns.run(std::chrono::hours(1));
        EXPECT_FALSE(turns.has(user++));
      });
  EXPECT_GT(calls, 3);
  EXPECT_EQ(runs, 2 * added);
}

TEST(EventLoop, TimersRunInTheirOrder) {
  EventLoop loop(std::chrono::hours(1));  // all due timers run in one round
  std::string order;
  const TimePoint now = MonotonicClock::now();
  loop.at(now, [&] { order += 'b'; });
  loop.at(now - std::chrono::seconds(1), [&] { order += 'a'; });
  loop.at(now, [&] { order += 'c'; });
  const auto cancelled = loop.at(now, [&] { order += 'x'; });
  loop.at(now + std::chrono::hours(1), [&] { order += 'y'; });
  loop.cancel(cancelled);
  loop.run_round();
  EXPECT_EQ(order, "abc");
}

TEST(EventLoop, AThousandTimersOfOneMomentLeaveOthersTheirTurn) {
  EventLoop loop(Duration::zero());
  int runs = 0;
  for (int i = 0; i < 1000; ++i) loop.at(MonotonicClock::now(), [&] { ++runs; });
  const UniqueFd somebody(::eventfd(1, EFD_CLOEXEC));
  int served = 0;
  loop.watch(somebody.get(), EPOLLIN, [&](uint32_t) { ++served; });
  for (int round = 1; round <= 10; ++round) loop.run_round();
  EXPECT_EQ(served, 10);
  EXPECT_EQ(runs, 10);
}

// As does the timer of an object with many deadlines, most of them overdue.
TEST(EventLoop, ATimerForThePastGoesBehindThoseThatAreDue) {
  EventLoop loop(Duration::zero());
  int runs = 0, others = 0;
  constexpr int kTooMany = 100;
  const std::function<void()> work = [&] {
    if (++runs < kTooMany) loop.at(TimePoint{}, work);
  };
  loop.at(TimePoint{}, work);
  loop.at(MonotonicClock::now(), [&] { ++others; });
  while (others == 0 && runs < kTooMany) loop.run_round();
  EXPECT_LE(runs, 2);
}

TEST(DeadlineTimer, KeepsItsPlaceWhenItIsArmedAgain) {
  EventLoop loop(Duration::zero());
  int runs = 0, rounds = 0;
  const std::function<void()> work = [&] { loop.at(TimePoint{}, work); };
  loop.at(TimePoint{}, work);
  loop.run_round();
  DeadlineTimer timer(loop, [&] { ++runs; });
  for (; runs == 0 && rounds < 100; ++rounds) {
    timer.arm(TimePoint{});
    loop.run_round();
  }
  EXPECT_LE(rounds, 3);
}

TEST(DeadlineTimer, OfAUsersObjectRunsInTurnsOfTheUser) {
  constexpr uid_t kUser = 1'000'000;
  EventLoop loop;
  int runs = 0;
  DeadlineTimer timer(loop, kUser, [&] { ++runs; });
  timer.arm(TimePoint{});
  while (runs == 0) {
    const bool has_turn = loop.has_work_for(kUser);
    loop.run_round();
    EXPECT_EQ(runs, has_turn ? 1 : 0);
  }
  timer.arm(TimePoint{});
  timer.cancel();
  for (int round = 0; round < 3; ++round) loop.in_next_round([] {}), loop.run_round();
  EXPECT_EQ(runs, 1);
}

TEST(DeadlineTimer, MayBeDestroyedByItsTask) {
  for (const bool is_users : {false, true}) {
    EventLoop loop;
    std::unique_ptr<DeadlineTimer> timer;
    const auto end = [&timer] { timer.reset(); };
    timer =
        is_users ? std::make_unique<DeadlineTimer>(loop, 1, end) : std::make_unique<DeadlineTimer>(loop, end);
    timer->arm(TimePoint{});
    while (timer) loop.run_round();
  }
}

// Each descriptor always has work.
class PacedTaskTest : public testing::Test {
 protected:
  // Runs the timers that are due by the clock of the loop, which is the real one.
  void run_timers() {
    bool is_last = false;
    loop.at(MonotonicClock::now(), [&] { is_last = true; });
    while (!is_last) loop.run_round();
  }

  // More causes than a burst has runs.
  void use_up_burst() {
    for (int i = 0; i < 1000; ++i) task.cause();
    ASSERT_EQ(runs, PacedTask::kBurst);
  }

  TimePoint now{std::chrono::milliseconds(1)};  // long ago for the loop, so that a timer is due at once
  EventLoop loop{Duration::zero()};
  int runs = 0;
  std::function<void()> during = [] {};
  PacedTask task{loop, std::chrono::milliseconds(100),
                 [this] {
                   ++runs;
                   during();
                 },
                 [this] { return now; }};
};

TEST_F(PacedTaskTest, RunsAtOnceUnlessItIsCausedTooOften) {
  for (int i = 1; i <= 100; ++i) {
    task.cause();
    EXPECT_EQ(runs, i);
    now += std::chrono::milliseconds(100);
  }
}

TEST_F(PacedTaskTest, RunsOnceForAllCausesOfAnInterval) {
  use_up_burst();
  now += std::chrono::milliseconds(100);
  run_timers();
  EXPECT_EQ(runs, PacedTask::kBurst + 1);
  run_timers();
  EXPECT_EQ(runs, PacedTask::kBurst + 1) << "nothing has caused it";
}

TEST_F(PacedTaskTest, HasAWholeBurstAgainAfterARest) {
  use_up_burst();
  now += PacedTask::kBurst * std::chrono::milliseconds(100);
  run_timers();
  runs = 0;
  now += std::chrono::milliseconds(100);
  use_up_burst();
}

TEST_F(PacedTaskTest, RunsLaterForACauseWhileItRuns) {
  during = [this] {
    if (runs == PacedTask::kBurst) task.cause();
  };
  use_up_burst();
  now += std::chrono::milliseconds(100);
  run_timers();
  EXPECT_EQ(runs, PacedTask::kBurst + 1);
}

TEST_F(PacedTaskTest, RunsAgainIfThereWasNoMemory) {
  during = [this] {
    if (runs == 1) throw std::bad_alloc();
  };
  task.cause();
  run_timers();
  EXPECT_EQ(runs, 2);
}

TEST(EventLoop, AUserWithManyDescriptorsHasNoMoreTurnsThanOneWithOne) {
  constexpr uid_t kBusy = 1, kOther = 2;
  TimePoint time{};
  EventLoop loop(Duration::zero(),
                 [&] { return time += UserTurns::kQuantum; });  // each piece of work takes this long
  std::vector<UniqueFd> many;
  int busy = 0, others = 0;
  for (int i = 0; i < 200; ++i) {
    many.emplace_back(::eventfd(1, EFD_CLOEXEC));
    loop.watch_for(kBusy, many.back().get(), EPOLLIN, [&](uint32_t) { return ++busy != 0; });
  }
  for (int round = 0; round < 20; ++round) loop.run_round();
  const UniqueFd one(::eventfd(1, EFD_CLOEXEC));
  loop.watch_for(kOther, one.get(), EPOLLIN, [&](uint32_t) { return ++others != 0; });
  const int before = busy;
  while (others == 0) loop.run_round();
  EXPECT_LE(busy - before, 1) << "it waits for one of the others' pieces";
}

TEST(EventLoop, OneThatIsForgottenHasNoTurnAnyMore) {
  EventLoop loop(Duration::zero());
  int served = 0;
  const UniqueFd one(::eventfd(1, EFD_CLOEXEC)), other(::eventfd(1, EFD_CLOEXEC));
  for (const UniqueFd* each : {&one, &other}) {
    loop.watch_for(1, each->get(), EPOLLIN, [&](uint32_t) {
      ++served;
      loop.forget(one.get());
      loop.forget(other.get());
      return true;
    });
  }
  for (int round = 0; round < 3; ++round) loop.in_next_round([] {}), loop.run_round();
  EXPECT_EQ(served, 1);
}

// Events are edge-triggered, and yet none is lost.
TEST(EventLoop, WhatComesAfterAHandlerIsDoneIsHandled) {
  EventLoop loop;
  const UniqueFd counter(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  uint64_t sum = 0;
  loop.watch_for(1, counter.get(), EPOLLIN, [&](uint32_t) {
    uint64_t value = 0;
    if (::read(counter.get(), &value, sizeof value) != sizeof value) return false;
    sum += value;
    return true;
  });
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(::write(counter.get(), &i, sizeof i), ssize_t{sizeof i});
    loop.run_round();
  }
  EXPECT_EQ(sum, 6u);
  loop.forget(counter.get());
}

// A program may have 131,072 identifiers that time out at one moment.
TEST(EventLoop, TimersOfAUserDelayNobody) {
  constexpr uid_t kBusy = 1, kOther = 2;
  TimePoint time{};
  EventLoop loop(Duration::zero(), [&] { return time += UserTurns::kQuantum; });  // of each piece of work
  int busy = 0, others = 0, own = 0;
  for (int i = 0; i < 1000; ++i) loop.at_for(kBusy, TimePoint{}, [&] { ++busy; });
  for (int round = 0; round < 3; ++round) loop.run_round();
  EXPECT_GT(busy, 0) << "one by one";
  loop.at(TimePoint{}, [&] { ++own; });
  loop.at_for(kOther, TimePoint{}, [&] { ++others; });
  const int before = busy;
  for (int round = 0; round < 3; ++round) loop.run_round();
  EXPECT_EQ(own, 1);
  EXPECT_EQ(others, 1);
  EXPECT_LE(busy - before, 3);
  while (busy < 1000) loop.run_round();
}

TEST(EventLoop, WakesUpAtTheEndOfAPause) {
  constexpr uid_t kSlow = 1'000'000;
  const TimePoint begun = MonotonicClock::now();
  Duration ahead{};
  EventLoop loop(
      EventLoop::kPerRound, [&] { return MonotonicClock::now() + ahead; }, [&] { return begun + ahead; });
  int runs = 0;
  const auto piece = [&] {
    ahead += UserTurns::kSlow + 2 * SlowUsers::kBudget;
    return ++runs < 2;
  };
  loop.in_turn_of(kSlow, piece);
  while (runs < 2) loop.run_round();
  loop.in_turn_of(kSlow, piece);
  ahead += SlowUsers::kPause * SlowUsers::kBudget - std::chrono::milliseconds(10);
  bool is_late = false;
  loop.at(MonotonicClock::now() + std::chrono::seconds(20), [&] { is_late = true; });
  while (runs < 3 && !is_late) loop.run_round();
  EXPECT_EQ(runs, 3);
  EXPECT_FALSE(is_late);
}

}  // namespace
}  // namespace verbena::agent
