// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "adapter/congestion/bbr.h"

namespace verbena::congestion {
namespace {

constexpr uint64_t kBandwidth = 100'000'000;

TEST(DcqcnRate, SetsNoLimitUntilSomethingIsMarked) {
  DcqcnRate rate;
  rate.on_round(kBandwidth);
  EXPECT_EQ(rate.limit(), 0u);
}

TEST(DcqcnRate, HalvesAtTheFirstNoticeAndOnceInARound) {
  DcqcnRate rate;
  rate.on_mark(kBandwidth);
  EXPECT_EQ(rate.limit(), kBandwidth / 2);
  rate.on_mark(rate.limit());
  EXPECT_EQ(rate.limit(), kBandwidth / 2);
  rate.on_round(kBandwidth);
  rate.on_mark(rate.limit());
  EXPECT_EQ(rate.limit(), kBandwidth / 4);
}

TEST(DcqcnRate, GivesBackHalfOfItInEachRoundWithoutNotice) {
  DcqcnRate rate;
  rate.on_mark(kBandwidth);
  rate.on_round(kBandwidth);  // the round of the CNP
  rate.on_round(kBandwidth);
  EXPECT_EQ(rate.limit(), kBandwidth * 3 / 4);
  rate.on_round(kBandwidth);
  EXPECT_EQ(rate.limit(), kBandwidth * 7 / 8);
}

TEST(DcqcnRate, TakesLessOffOneThatIsSeldomMarked) {
  DcqcnRate rate;
  rate.on_mark(kBandwidth);
  for (int i = 0; i < 21; ++i) rate.on_round(kBandwidth);
  const uint64_t before = rate.limit();
  rate.on_mark(before);
  EXPECT_GT(rate.limit(), before * 3 / 4);
}

TEST(DcqcnRate, ForgetsItAllWhenItStandsInNobodysWay) {
  DcqcnRate rate;
  rate.on_mark(kBandwidth);
  for (int i = 0; i < 100; ++i) rate.on_round(kBandwidth);
  EXPECT_EQ(rate.limit(), 0u);
}

// CNPs can be forged in a peer's name.
TEST(DcqcnRate, NeverStopsWhoIsSentNoticesWithoutEnd) {
  DcqcnRate rate;
  rate.on_mark(kBandwidth);
  for (int i = 0; i < 100; ++i) {
    rate.on_round(kBandwidth);
    rate.on_mark(rate.limit());
    EXPECT_GE(rate.limit(), DcqcnRate::kLeast);
  }
}

TEST(DcqcnRate, TakesNothingOffARateThatIsNotKnown) {
  DcqcnRate rate;
  rate.on_mark(0);
  EXPECT_EQ(rate.limit(), 0u);
}

}  // namespace
}  // namespace verbena::congestion
