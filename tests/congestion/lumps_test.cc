// SPDX-License-Identifier: Apache-2.0
#include "congestion/lumps.h"

#include <gtest/gtest.h>

namespace verbena::congestion {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kRate = 10'000'000;  // bytes a second: 10,000 in a millisecond
constexpr TimePoint kStart{std::chrono::hours(1)};

// The lump that was seen in a round of arrivals, `bytes` each, so far apart.
void arrive(Lumps& lumps, uint64_t round, TimePoint& now, int count, uint64_t bytes, Duration apart) {
  for (int i = 0; i < count; ++i) {
    now += apart;
    lumps.on_arrival(round, bytes, kRate, now);
  }
}

TEST(Lumps, AreSmallWhereBytesArriveEvenly) {
  Lumps lumps;
  TimePoint now = kStart;
  arrive(lumps, 1, now, 100, 10'000, milliseconds(1));
  EXPECT_NEAR(static_cast<double>(lumps.get()), 10'000, 5);
}

TEST(Lumps, HoldWhatHasComeAtOnceAfterAStall) {
  Lumps lumps;
  TimePoint now = kStart;
  arrive(lumps, 1, now, 100, 10'000, milliseconds(1));
  now += milliseconds(9);
  arrive(lumps, 1, now, 10, 10'000, Duration(0));
  // Nothing more than the rate had come in the stall: it counts from its end.
  EXPECT_NEAR(static_cast<double>(lumps.get()), 100'000, 5);
}

TEST(Lumps, GrowWhileMoreComesThanTheRateExplains) {
  Lumps lumps;
  TimePoint now = kStart;
  arrive(lumps, 1, now, 11, 20'000, milliseconds(1));
  EXPECT_NEAR(static_cast<double>(lumps.get()), 120'000, 5);
}

TEST(Lumps, AreForgottenAfterSomeRounds) {
  Lumps lumps;
  TimePoint now = kStart;
  arrive(lumps, 1, now, 10, 10'000, Duration(0));
  uint64_t round = 2;
  for (; round <= RoundMaximum::kRounds; ++round) arrive(lumps, round, now, 20, 10'000, milliseconds(1));
  EXPECT_NEAR(static_cast<double>(lumps.get()), 100'000, 5);
  for (; round <= 2 * RoundMaximum::kRounds; ++round) arrive(lumps, round, now, 20, 10'000, milliseconds(1));
  EXPECT_NEAR(static_cast<double>(lumps.get()), 10'000, 5);
}

}  // namespace
}  // namespace verbena::congestion
