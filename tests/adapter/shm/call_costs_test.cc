// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/call_costs.h"

#include <chrono>

#include <gtest/gtest.h>

namespace verbena::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using enum CallCosts::Cause;

constexpr TimePoint kStart{std::chrono::hours(1)};

// The time that such calls take in 10 s if each is made as soon as it may be.
Duration time_in_ten_seconds(CallCosts& costs, Duration each, CallCosts::Cause cause) {
  Duration sum{};
  for (TimePoint now = kStart; now < kStart + seconds(10);) {
    now = std::max(now, costs.allowed_from(cause)) + each;
    costs.note(each, costs.is_suspect(now), cause, now);
    sum += each;
  }
  return sum;
}

// Sixteen channels could so keep a program in calls that were quick enough for any limit of a single call.
TEST(CallCosts, QuickCallsThatTheOtherCausesTakeAHundredthOfTheTime) {
  for (const Duration each : {microseconds(3), microseconds(19), microseconds(100)}) {
    CallCosts costs;
    const Duration sum = time_in_ten_seconds(costs, each, kTheirs);
    EXPECT_GT(sum, milliseconds(90));
    EXPECT_LT(sum, milliseconds(110));
  }
}

TEST(CallCosts, QuickCallsOfOurOwnAreFree) {
  CallCosts costs;
  EXPECT_GE(time_in_ten_seconds(costs, CallCosts::kNormal, kOurs), seconds(10));
  EXPECT_TRUE(costs.is_forgettable(kStart + seconds(11)));
}

TEST(CallCosts, OfCallsOfOurOwnTheTimeAboveTheNormalIsLimited) {
  CallCosts costs;
  const Duration sum = time_in_ten_seconds(costs, microseconds(100), kOurs);
  EXPECT_GT(sum, milliseconds(200));
  EXPECT_LT(sum, milliseconds(300));
}

TEST(CallCosts, WhatTheOtherCausesDoesNotKeepUsFromOurOwn) {
  CallCosts costs;
  time_in_ten_seconds(costs, microseconds(10), kTheirs);
  const TimePoint now = kStart + seconds(10);
  costs.note(microseconds(10), false, kTheirs, now);
  EXPECT_GT(costs.allowed_from(kTheirs), now);
  EXPECT_LE(costs.allowed_from(kOurs), now);
}

TEST(CallCosts, ALongCallIsFollowedByAPauseAHundredTimesAsLong) {
  CallCosts costs;
  costs.note(milliseconds(50), true, kTheirs, kStart);
  EXPECT_EQ(costs.allowed_from(kTheirs), kStart + 100 * (milliseconds(50) - CallCosts::kBurst));
  EXPECT_GT(costs.allowed_from(kOurs), kStart + seconds(3));
  EXPECT_FALSE(costs.is_forgettable(kStart + seconds(4)));
}

TEST(CallCosts, WaitingForAProcessorIsNoReason) {
  CallCosts costs;
  for (int i = 0; i < 1000; ++i) costs.note(milliseconds(50), false, kOurs, kStart);
  EXPECT_LE(costs.allowed_from(kOurs), kStart);
}

TEST(CallCosts, AfterALongCallOthersAreMeasuredByProcessorTime) {
  CallCosts costs;
  EXPECT_FALSE(costs.is_suspect(kStart));
  costs.note(milliseconds(50), false, kTheirs, kStart);
  EXPECT_LE(costs.allowed_from(kTheirs), kStart);
  EXPECT_TRUE(costs.is_suspect(kStart + seconds(59)));
  EXPECT_FALSE(costs.is_suspect(kStart + CallCosts::kWindow));
}

class Clock final : public CallClock {
 public:
  TimePoint now() const override { return time; }
  TimePoint processor_time() const override { return time; }
  std::optional<Duration> wait_for_processor() const override { return delay; }
  mutable TimePoint time = kStart;
  mutable std::optional<Duration> delay = Duration::zero();
};

class GuestAccounts : public testing::Test {
 protected:
  CallAccounts guest() { return {.guests = &guests, .is_wanted = &is_wanted, .clock = &clock}; }
  void call(const CallAccounts& accounts, Duration time, CallCosts::Cause cause) {
    accounts.measure(
        cause, [&] { clock.time += time; }, [] { return true; });
  }

  Clock clock;
  CallCosts guests;
  bool is_wanted = false;
};

// One user may have any number of user numbers.
TEST_F(GuestAccounts, AllTogetherHaveAsMuchAsOneUser) {
  Duration sum{};
  for (int user = 0; user < 1000; ++user) {
    const CallAccounts accounts = guest();
    while (accounts.allow(kOurs)) {
      call(accounts, CallCosts::kNormal, kOurs);
      sum += CallCosts::kNormal;
    }
    clock.time += milliseconds(10);
  }
  EXPECT_GT(sum, milliseconds(90));
  EXPECT_LT(sum, milliseconds(120));
}

TEST_F(GuestAccounts, AreLeftByOnesThatTheProgramNames) {
  const CallAccounts one = guest();
  call(guest(), CallCosts::kNormal + microseconds(1), kTheirs);  // from now on by processor time
  call(guest(), seconds(1), kTheirs);
  EXPECT_FALSE(one.allow(kOurs));
  is_wanted = true;
  EXPECT_TRUE(one.allow(kOurs));
  call(one, CallCosts::kNormal, kOurs);
  EXPECT_TRUE(one.user->is_forgettable(clock.time + CallCosts::kWindow));
}

// A process makes others wait for pages of the memory that it shares.
TEST_F(GuestAccounts, CountWaitsForTheOtherProcessAndNotForAProcessor) {
  const CallAccounts one = guest();
  one.measure_waits([&] {
    clock.time += seconds(1);
    clock.delay = *clock.delay + seconds(1);
  });
  EXPECT_TRUE(one.allow(kTheirs));
  one.measure_waits([&] { clock.time += seconds(1); });
  EXPECT_FALSE(one.allow(kTheirs));
}

TEST_F(GuestAccounts, DoNotCountWhatTurnsOutToBeOurUsers) {
  const CallAccounts one = guest();
  one.measure(
      kTheirs, [&] { clock.time += seconds(1); }, [] { return false; });
  EXPECT_TRUE(one.allow(kTheirs));
  EXPECT_TRUE(one.user->is_forgettable(clock.time));
}

}  // namespace
}  // namespace verbena::engine
