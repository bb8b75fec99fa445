// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/recent_clock.h"

namespace verbena {
namespace {

constexpr TimePoint kStart{std::chrono::hours(100)};
constexpr uint64_t kFirst = 1'000'000'007;

// A counter of 2.5 GHz that is compared with a clock.
class TickClockTest : public testing::Test {
 protected:
  uint64_t ticks_after(Duration time) const { return kFirst + static_cast<uint64_t>(time.count()) * 5 / 2; }
  void read_after(Duration time) { clock.read(ticks_after(time), kStart + time); }
  void learn() {
    for (int reading = 0; reading < 3; ++reading) read_after(reading * kApart);
  }

  static constexpr Duration kApart = std::chrono::microseconds(500);
  static constexpr Duration kLearned = 2 * kApart;
  TickClock clock;
};

TEST_F(TickClockTest, IsToBeReadAtFirst) {
  EXPECT_FALSE(clock.at(kFirst));
  read_after(Duration::zero());
  EXPECT_FALSE(clock.at(kFirst + 1)) << "the length of a tick is unknown";
  read_after(kApart);
  EXPECT_FALSE(clock.at(ticks_after(kApart))) << "one may be wrong";
}

TEST_F(TickClockTest, TellsTheTimeOnceTwoReadingsAgree) {
  learn();
  for (const Duration later : {Duration(0), Duration(100), Duration(400'000)}) {
    const auto told = clock.at(ticks_after(kLearned + later));
    ASSERT_TRUE(told);
    EXPECT_NEAR(static_cast<double>((*told - kStart).count()),
                static_cast<double>((kLearned + later).count()), 2.0);
  }
}

TEST_F(TickClockTest, IsToBeReadAgainAfterAMoment) {
  learn();
  EXPECT_TRUE(clock.at(ticks_after(kLearned) + TickClock::kMoment - 1));
  EXPECT_FALSE(clock.at(ticks_after(kLearned) + TickClock::kMoment));
}

TEST_F(TickClockTest, ReadingsCloseToEachOtherTeachNothing) {
  read_after(Duration::zero());
  for (int i = 1; i < 100; ++i) clock.read(kFirst + static_cast<uint64_t>(i), kStart + Duration(i * 1000));
  EXPECT_FALSE(clock.at(kFirst + 100));
  read_after(kApart);
  read_after(2 * kApart);
  EXPECT_TRUE(clock.at(ticks_after(2 * kApart)));
}

TEST_F(TickClockTest, ACounterThatIsBehindIsNotBelieved) {
  learn();
  EXPECT_FALSE(clock.at(ticks_after(kLearned) - 1)) << "that of another processor";
  EXPECT_FALSE(clock.at(0));
}

TEST_F(TickClockTest, IsLearnedAgainWhenTheCounterChangesItsPace) {
  learn();
  const Duration later = kLearned + kApart;
  clock.read(ticks_after(later) + 5000, kStart + later);
  EXPECT_FALSE(clock.at(ticks_after(later) + 5000)) << "more than a thousandth more ticks";
}

TEST_F(TickClockTest, AClockThatGoesBackIsLearnedAgain) {
  learn();
  clock.read(ticks_after(kLearned) + 10, kStart);
  EXPECT_FALSE(clock.at(ticks_after(kLearned) + 11));
}

TEST_F(TickClockTest, APauseTeachesNothing) {
  learn();
  read_after(kLearned + std::chrono::seconds(2));
  EXPECT_FALSE(clock.at(ticks_after(kLearned + std::chrono::seconds(2))));
  read_after(kLearned + std::chrono::seconds(2) + kApart);
  read_after(kLearned + std::chrono::seconds(2) + 2 * kApart);
  EXPECT_TRUE(clock.at(ticks_after(kLearned + std::chrono::seconds(2) + 2 * kApart)));
}

TEST_F(TickClockTest, ForgetsWhatItIsToldToForget) {
  learn();
  clock.forget();
  EXPECT_FALSE(clock.at(ticks_after(kLearned)));
}

}  // namespace
}  // namespace verbena
