// SPDX-License-Identifier: Apache-2.0
#include "agent/event_loop.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/unique_fd.h"

namespace verbena::agent {
namespace {

TEST(EventLoop, ATimerThatComesDueMeanwhileWaitsForTheNextRound) {
  EventLoop loop;
  int runs = 0;
  constexpr int kTooMany = 100;
  // As one whose work takes longer than it rests.
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

TEST(EventLoop, TimersRunInTheirOrder) {
  EventLoop loop;
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

}  // namespace
}  // namespace verbena::agent
