// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <gtest/gtest.h>

#include "adapter/congestion/bbr.h"

namespace verbena::congestion {
namespace {

constexpr uint64_t kPacket = 1088;

TEST(InflightCap, IsNotThereBeforeAQueueOverflows) {
  InflightCap ceiling;
  ceiling.on_quiet_round(kPacket, 100 * kPacket, 1);
  EXPECT_EQ(ceiling.get(), InflightCap::kNone);
}

TEST(InflightCap, LiesBelowWhatWasInFlightWhenTheQueueOverflowed) {
  InflightCap ceiling;
  ceiling.on_overflow(100 * kPacket, 4 * kPacket);
  EXPECT_LT(ceiling.get(), 90 * kPacket);
  EXPECT_GT(ceiling.get(), 80 * kPacket);
}

TEST(InflightCap, IsNoLowerThanWhatIsNeeded) {
  InflightCap ceiling;
  for (int i = 0; i < 100; ++i) ceiling.on_overflow(std::min(ceiling.get(), 100 * kPacket), 20 * kPacket);
  EXPECT_EQ(ceiling.get(), 20 * kPacket);
}

TEST(InflightCap, RisesInRoundsWithoutLossesUntilItHoldsNothingBack) {
  InflightCap ceiling;
  ceiling.on_overflow(100 * kPacket, 4 * kPacket);
  uint64_t before = ceiling.get();
  int rounds = 0;
  while (ceiling.get() != InflightCap::kNone && rounds < 100) {
    ceiling.on_quiet_round(kPacket, 200 * kPacket, 1);
    EXPECT_GE(ceiling.get(), before + kPacket);
    before = ceiling.get();
    ++rounds;
  }
  EXPECT_EQ(ceiling.get(), InflightCap::kNone);
  EXPECT_GT(rounds, 5) << "not at once";
}

}  // namespace
}  // namespace verbena::congestion
