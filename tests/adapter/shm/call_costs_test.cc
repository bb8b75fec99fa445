// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/call_costs.h"

#include <chrono>

#include <gtest/gtest.h>

namespace verbena::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr TimePoint kStart{std::chrono::hours(1)};

TEST(CallCosts, SomeSlowCallsByProcessorTimeAreTooMany) {
  CallCosts costs;
  TimePoint now = kStart;
  EXPECT_FALSE(costs.is_suspect(now));
  EXPECT_FALSE(costs.note(milliseconds(50), false, now));
  for (int i = 1; i < CallCosts::kMaxSlow; ++i) {
    now += milliseconds(50);
    EXPECT_TRUE(costs.is_suspect(now));
    EXPECT_FALSE(costs.note(milliseconds(50), true, now));
  }
  EXPECT_TRUE(costs.note(milliseconds(50), true, now + milliseconds(50)));
}

TEST(CallCosts, WaitingForAProcessorIsNoReason) {
  CallCosts costs;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(costs.note(milliseconds(50), false, kStart));
}

TEST(CallCosts, NormalCallsAreFree) {
  CallCosts costs;
  TimePoint now = kStart;
  EXPECT_FALSE(costs.note(milliseconds(1), false, now));
  for (int i = 0; i < 100'000; ++i) {
    now += CallCosts::kNormal;
    EXPECT_FALSE(costs.note(CallCosts::kNormal, costs.is_suspect(now), now));
  }
  EXPECT_FALSE(costs.is_suspect(now)) << "it needs no measuring by processor time any more";
}

TEST(CallCosts, CallsThatAreALittleSlowAddUp) {
  CallCosts costs;
  TimePoint now = kStart;
  int calls = 0;
  while (!costs.note(microseconds(600), costs.is_suspect(now), now)) {
    now += milliseconds(1);
    ASSERT_LT(++calls, 100);
  }
  EXPECT_GE(calls, CallCosts::kMaxSlow);
  EXPECT_LE(calls, 10);
}

TEST(CallCosts, QuickCallsInBetweenHideNoSlowOnes) {
  CallCosts costs;
  TimePoint now = kStart;
  bool is_too_much = costs.note(milliseconds(50), false, now);
  for (int i = 0; i < CallCosts::kMaxSlow; ++i) {
    for (int quick = 0; quick < 50; ++quick) {
      now += milliseconds(10);
      EXPECT_FALSE(costs.note(microseconds(3), costs.is_suspect(now), now));
    }
    is_too_much = costs.note(milliseconds(50), costs.is_suspect(now), now);
  }
  EXPECT_TRUE(is_too_much);
}

TEST(CallCosts, AThousandthOfTheTimeMayPass) {
  CallCosts costs;
  TimePoint now = kStart;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(costs.note(milliseconds(1), false, now));
    EXPECT_FALSE(costs.note(CallCosts::kNormal + microseconds(500), true, now));
    now += milliseconds(501);
  }
}

TEST(AvoidedUsers, AreAvoidedForAMinute) {
  AvoidedUsers avoided;
  EXPECT_LE(avoided.until(1000), kStart);
  avoided.add(1000, kStart);
  EXPECT_EQ(avoided.until(1000), kStart + AvoidedUsers::kTime);
  avoided.add(1000, kStart + milliseconds(5));
  EXPECT_EQ(avoided.until(1000), kStart + milliseconds(5) + AvoidedUsers::kTime);
  EXPECT_LE(avoided.until(1001), kStart);
}

TEST(AvoidedUsers, MakeRoomForLaterOnes) {
  AvoidedUsers avoided;
  for (uid_t user = 1; user <= 100; ++user) avoided.add(user, kStart + microseconds(user));
  EXPECT_LE(avoided.until(1), kStart);
  for (uid_t user = 90; user <= 100; ++user) EXPECT_GT(avoided.until(user), kStart) << user;
}

}  // namespace
}  // namespace verbena::engine
