// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "adapter/congestion/flow.h"

namespace verbena::congestion {
namespace {

using std::chrono::microseconds;

constexpr uint32_t kPacket = 1000;
constexpr uint32_t kMaxBurst = 64 * kPacket;
constexpr TimePoint kStart{std::chrono::hours(1)};

Pacer pace_of(uint64_t rate) {
  Pacer pace;
  pace.set(rate, 2 * kPacket, kMaxBurst);
  return pace;
}

TEST(Pacer, LetsBytesThroughAtItsRateHoweverLateItIsAsked) {
  Pacer pace;
  pace.set(100'000'000, 2 * kPacket, 64 * kPacket);
  TimePoint now{std::chrono::seconds(1)};
  const TimePoint began = now;
  uint64_t bytes = 0;
  while (now - began < std::chrono::seconds(1)) {
    while (pace.allows(now)) {
      pace.sent(kPacket, now);
      bytes += kPacket;
    }
    ASSERT_GT(pace.next(), now);
    now = pace.next() + microseconds(66);  // the timer's resolution
  }
  EXPECT_NEAR(static_cast<double>(bytes), 100e6, 1e6);
}

TEST(Pacer, MakesUpForNoMoreThanAMoment) {
  Pacer pace;
  pace.set(100'000'000, 2 * kPacket, 64 * kPacket);
  TimePoint now{std::chrono::seconds(1)};
  pace.sent(kPacket, now);
  now += std::chrono::seconds(10);
  uint64_t bytes = 0;
  for (; pace.allows(now); bytes += kPacket) pace.sent(kPacket, now);
  EXPECT_LE(bytes, 100'000u + 2 * kPacket);
}

TEST(Pacer, ForgetsWhatIsNotThoughtToBeOnItsWayAnyMore) {
  Pacer pace;
  pace.set(10'000, 2 * kPacket, 64 * kPacket);
  const TimePoint now{std::chrono::seconds(1)};
  pace.sent(64 * kPacket, now);
  EXPECT_FALSE(pace.allows(now + std::chrono::seconds(5)));
  pace.forget();
  EXPECT_TRUE(pace.allows(now));
}

TEST(Pacer, WithoutARateHoldsNothingBack) {
  Pacer pace;
  const TimePoint now{std::chrono::seconds(1)};
  for (int i = 0; i < 1000; ++i) pace.sent(kPacket, now);
  EXPECT_TRUE(pace.allows(now));
  EXPECT_TRUE(pace.allows_after_run(kMaxBurst, now));
}

TEST(Pacer, AllowsARunWhenAllOfItMayLeave) {
  Pacer pace = pace_of(1'000'000'000);
  for (uint32_t sent = 0; sent < 100; ++sent) pace.sent(kPacket, kStart);
  EXPECT_TRUE(pace.allows(kStart));
  EXPECT_TRUE(pace.allows_after_run(28 * kPacket, kStart));
  EXPECT_FALSE(pace.allows_after_run(29 * kPacket, kStart));
  EXPECT_TRUE(pace.allows_after_run(29 * kPacket, kStart + microseconds(1)));
}

TEST(Pacer, AllowsARunWhenTheNextBurstMayLeave) {
  Pacer pace = pace_of(1'000'000'000);
  while (pace.allows(kStart)) pace.sent(kPacket, kStart);
  EXPECT_FALSE(pace.allows_after_run(kMaxBurst, pace.next() - Duration(1)));
  EXPECT_TRUE(pace.allows_after_run(kMaxBurst, pace.next()));
}

TEST(Pacer, AsksForNoRunWhereTheyTakeLongerThanABurstMay) {
  Pacer pace = pace_of(10'000'000);
  EXPECT_TRUE(pace.allows_after_run(kMaxBurst, kStart));
  while (pace.allows(kStart)) pace.sent(kPacket, kStart);
  EXPECT_TRUE(pace.allows_after_run(kMaxBurst, kStart)) << "allows() decides";
}

}  // namespace
}  // namespace verbena::congestion
