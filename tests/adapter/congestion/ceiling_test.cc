// SPDX-License-Identifier: Apache-2.0
#include "adapter/congestion/ceiling.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace verbena::congestion {
namespace {

constexpr uint64_t kPacket = 1088;

TEST(Ceiling, IsNotThereBeforeAQueueOverflows) {
  Ceiling ceiling;
  ceiling.on_quiet_round(kPacket, 100 * kPacket, 1);
  EXPECT_EQ(ceiling.get(), Ceiling::kNone);
}

TEST(Ceiling, LiesBelowWhatWasInFlightWhenTheQueueOverflowed) {
  Ceiling ceiling;
  ceiling.on_overflow(100 * kPacket, 4 * kPacket);
  EXPECT_LT(ceiling.get(), 90 * kPacket);
  EXPECT_GT(ceiling.get(), 80 * kPacket);
}

TEST(Ceiling, IsNoLowerThanWhatIsNeeded) {
  Ceiling ceiling;
  for (int i = 0; i < 100; ++i) ceiling.on_overflow(std::min(ceiling.get(), 100 * kPacket), 20 * kPacket);
  EXPECT_EQ(ceiling.get(), 20 * kPacket);
}

TEST(Ceiling, RisesInRoundsWithoutLossesUntilItHoldsNothingBack) {
  Ceiling ceiling;
  ceiling.on_overflow(100 * kPacket, 4 * kPacket);
  uint64_t before = ceiling.get();
  int rounds = 0;
  while (ceiling.get() != Ceiling::kNone && rounds < 100) {
    ceiling.on_quiet_round(kPacket, 200 * kPacket, 1);
    EXPECT_GE(ceiling.get(), before + kPacket);
    before = ceiling.get();
    ++rounds;
  }
  EXPECT_EQ(ceiling.get(), Ceiling::kNone);
  EXPECT_GT(rounds, 5) << "not at once";
}

}  // namespace
}  // namespace verbena::congestion
