// SPDX-License-Identifier: Apache-2.0
#include "agent/event_loop.h"

#include <chrono>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace verbena::agent {
namespace {

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

// Each descriptor always has work.
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

TEST(EventLoop, WakesUpAtTheEndOfAPause) {
  constexpr uid_t kSlow = 1'000'000;
  const TimePoint begun = MonotonicClock::now();
  Duration ahead{};
  EventLoop loop(
      EventLoop::kPerRound, [&] { return MonotonicClock::now() + ahead; }, [&] { return begun + ahead; });
  int runs = 0;
  const auto piece = [&] {
    ahead += UserTurns::kSlow;
    return ++runs == 1;
  };
  loop.in_turn_of(kSlow, piece);
  while (runs < 2) loop.run_round();
  loop.in_turn_of(kSlow, piece);
  ahead += SlowUsers::kPause * UserTurns::kSlow - std::chrono::milliseconds(10);
  bool is_late = false;
  loop.at(MonotonicClock::now() + std::chrono::seconds(20), [&] { is_late = true; });
  while (runs < 3 && !is_late) loop.run_round();
  EXPECT_EQ(runs, 3);
  EXPECT_FALSE(is_late);
}

}  // namespace
}  // namespace verbena::agent
