// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "adapter/congestion/bbr.h"

namespace verbena::congestion {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class LeastRoundTripTest : public testing::Test {
 protected:
  // A round within a millisecond, with as many samples as a mean needs. Returns whether a dip is wanted.
  bool round(Duration sample, bool may_dip = true) {
    for (int64_t i = 0; i < MinRtt::kLeastSamples; ++i) least.on_sample(sample, now);
    now += milliseconds(1);
    return least.on_round(now, may_dip);
  }
  // Runs rounds with larger samples until a dip is wanted. Returns the time that took.
  Duration until_dip() {
    const TimePoint begin = now;
    while (!round(microseconds(400))) {
    }
    return now - begin;
  }
  void expect_dip_after(Duration time) {
    const Duration found = until_dip();
    EXPECT_GT(found, time);
    EXPECT_LE(found, time + milliseconds(2));
  }
  void dip(Duration found) {
    least.begin_dip();
    round(found);
    least.end_dip(now);
  }

  MinRtt least;
  TimePoint now{std::chrono::hours(1)};
};

TEST_F(LeastRoundTripTest, IsTheFirstSampleUntilThereIsAMean) {
  least.on_sample(microseconds(70), now);
  EXPECT_EQ(least.get(), microseconds(70));
  EXPECT_FALSE(round(microseconds(200)));
  EXPECT_GT(least.get(), microseconds(150)) << "the one came by a shorter way";
}

TEST_F(LeastRoundTripTest, IsThatOfTheShortestRound) {
  for (const int us : {300, 200, 250}) round(microseconds(us));
  EXPECT_EQ(least.get(), microseconds(200));
  EXPECT_EQ(least.latest(), microseconds(250));
}

TEST_F(LeastRoundTripTest, IsOfNoRoundWithTooFewSamples) {
  round(microseconds(300));
  for (int64_t i = 1; i < MinRtt::kLeastSamples; ++i) least.on_sample(microseconds(100), now);
  EXPECT_FALSE(least.on_round(now, true));
  EXPECT_EQ(least.get(), microseconds(300));
}

TEST_F(LeastRoundTripTest, IsLookedForSoonAndThenLessAndLessOften) {
  round(microseconds(300));
  expect_dip_after(MinRtt::kSoon);
  dip(microseconds(300));
  expect_dip_after(2 * MinRtt::kSoon);
}

TEST_F(LeastRoundTripTest, IsLookedForSoonAgainWhenADipHasFoundMuchLess) {
  round(microseconds(300));
  until_dip();
  dip(microseconds(300));
  until_dip();
  dip(microseconds(100));
  EXPECT_EQ(least.get(), microseconds(100));
  expect_dip_after(MinRtt::kSoon);
}

TEST_F(LeastRoundTripTest, IsNotLookedForWhereTheTimeIsNotRight) {
  round(microseconds(300));
  now += MinRtt::kLasts;
  EXPECT_FALSE(round(microseconds(400), /*may_dip=*/false));
  EXPECT_TRUE(round(microseconds(400)));
}

}  // namespace
}  // namespace verbena::congestion
