// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "adapter/congestion/algorithm.h"
#include "base/random.h"

namespace verbena::congestion {
namespace {

constexpr uint32_t kPacket = 1088;
constexpr uint32_t kRun = 60 * kPacket;
constexpr uint32_t kBurst = 64 * kPacket;
constexpr uint32_t kStart = 2 * kBurst;
constexpr uint32_t kMax = 4 * kBurst;

class FixedWindowTest : public testing::Test {
 protected:
  void SetUp() override { window.reset({kPacket, kRun, kBurst}); }
  void acknowledge_windows(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t whole = window.bytes();
      for (uint32_t done = 0; done < whole; done += kPacket) window.on_acknowledged(kPacket);
    }
  }

  FixedWindow window;
};

TEST_F(FixedWindowTest, GrowsByAboutOnePacketAWindow) {
  EXPECT_EQ(window.bytes(), kStart);
  acknowledge_windows(10);
  EXPECT_NEAR(window.bytes(), kStart + 10 * kPacket, kPacket);
}

TEST_F(FixedWindowTest, GrowsNoFurtherThanItsMost) {
  acknowledge_windows(1000);
  EXPECT_EQ(window.bytes(), kMax);
}

TEST_F(FixedWindowTest, GrowsTwiceAsFarWhereItMay) {
  window.reset({kPacket, kRun, kBurst}, FixedWindow::kFourTimes);
  EXPECT_EQ(window.bytes(), kStart);
  acknowledge_windows(1000);
  EXPECT_EQ(window.bytes(), 2 * kMax);
}

TEST_F(FixedWindowTest, HalvesAtALoss) {
  window.on_loss();
  EXPECT_EQ(window.bytes(), kStart / 2);
  acknowledge_windows(4);
  EXPECT_NEAR(window.bytes(), kStart / 2 + 4 * kPacket, kPacket) << "no leap back";
}

TEST_F(FixedWindowTest, BeginsWithAPacketAfterATimeoutAndIsSoonAtHalf) {
  window.on_timeout();
  EXPECT_EQ(window.bytes(), kPacket);
  uint32_t windows = 0;
  while (window.bytes() < kStart / 2 && windows < 100) {
    acknowledge_windows(1);
    ++windows;
  }
  EXPECT_LE(windows, 8u) << "it doubles with each window";
  EXPECT_LE(window.bytes(), kStart / 2 + kPacket);
}

TEST_F(FixedWindowTest, AlwaysLetsAFewPacketsThrough) {
  for (int i = 0; i < 100; ++i) {
    window.on_loss();
    EXPECT_GE(window.bytes(), 4 * kPacket);
    window.on_timeout();
    EXPECT_GE(window.bytes(), kPacket);
  }
}

TEST_F(FixedWindowTest, IsUsedInWholeRunsOnceItHoldsOne) {
  EXPECT_EQ(window.usable(), 2 * kRun);
  window.on_loss();
  EXPECT_EQ(window.usable(), kRun);
  window.on_loss();
  EXPECT_EQ(window.usable(), window.bytes()) << "less than one: all of it";
  acknowledge_windows(1000);
  EXPECT_EQ(window.usable(), 4 * kRun);
}

TEST_F(FixedWindowTest, StaysWithinItsBoundsWhateverHappens) {
  Random random(1);
  for (int i = 0; i < 100'000; ++i) {
    switch (random.below(50)) {
      case 0:
        window.on_loss();
        break;
      case 1:
        window.on_timeout();
        break;
      default:
        window.on_acknowledged(static_cast<uint32_t>(random.below(64 * 1024)));
    }
    ASSERT_GE(window.bytes(), kPacket);
    ASSERT_LE(window.bytes(), kMax);
  }
}

TEST_F(FixedWindowTest, BeginsAnewWhenReset) {
  window.on_timeout();
  window.reset({300, 64 * 300, kBurst});
  EXPECT_EQ(window.bytes(), kStart);
}

TEST_F(FixedWindowTest, HoldsAFewPacketsWhereNothingIsGainedTogether) {
  window.reset({4096, 4096, 0});
  EXPECT_EQ(window.bytes(), 4 * 4096u);
  acknowledge_windows(100);
  EXPECT_EQ(window.bytes(), 8 * 4096u);
}

}  // namespace
}  // namespace verbena::congestion
