// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/stream_ways.h"

#include <array>

#include <gtest/gtest.h>

namespace verbena::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Way = StreamWays::Way;

constexpr uint64_t kPiece = 256 * 1024;

// A program that sends as fast as it can, or as fast as it wants to, and a machine on which each way carries
// so much.
class StreamWaysTest : public testing::Test {
 protected:
  // Goes on for so long; returns the share of bytes that each way has carried.
  std::array<double, 3> stream(Duration time) {
    const TimePoint until = now + time;
    std::array<uint64_t, 3> by{};
    uint64_t all = 0;
    while (now < until) {
      const auto way = static_cast<size_t>(ways.follow(streamed, now, may_lend));
      streamed += kPiece;
      by[way] += kPiece;
      all += kPiece;
      now += std::max(Duration(static_cast<int64_t>(kPiece / rates[way])), pause);
    }
    return {static_cast<double>(by[0]) / static_cast<double>(all),
            static_cast<double>(by[1]) / static_cast<double>(all),
            static_cast<double>(by[2]) / static_cast<double>(all)};
  }
  void begins() { stream(seconds(2)); }

  StreamWays ways;
  TimePoint now{std::chrono::hours(1)};
  uint64_t streamed = 0;
  bool may_lend = true;
  std::array<double, 3> rates{10, 10, 10};  // bytes in a nanosecond
  Duration pause{};                         // at least, from one piece to the next
};

TEST_F(StreamWaysTest, TheFastestCarriesNearlyAll) {
  for (const size_t fastest : {0u, 1u, 2u}) {
    rates = {8, 8, 8};
    rates[fastest] = 16;
    begins();
    EXPECT_GT(stream(seconds(10))[fastest], 0.97) << fastest;
  }
}

TEST_F(StreamWaysTest, SlowWaysAreTriedShortly) {
  rates = {2, 2, 10};  // as between processors that are far from each other
  begins();
  const uint64_t before = streamed;
  stream(seconds(10));
  EXPECT_GT(static_cast<double>(streamed - before), 0.97 * 10e9 * 10);
}

TEST_F(StreamWaysTest, WhatIsHardlyFasterIsNotTaken) {
  rates = {10, 10.9, 10.9};
  begins();
  EXPECT_GT(stream(seconds(10))[0], 0.9);
}

TEST_F(StreamWaysTest, WhatHasBecomeFasterIsTakenSoon) {
  rates = {10, 20, 5};
  begins();
  rates = {2, 2, 10};
  stream(seconds(2));
  EXPECT_EQ(ways.way(), Way::kLent);
  rates = {10, 20, 5};
  stream(seconds(2));
  EXPECT_EQ(ways.way(), Way::kWidestRing);
}

TEST_F(StreamWaysTest, WhatWasFoundAtTheBeginningHoldsForAMomentOnly) {
  rates = {5, 5, 5};
  stream(milliseconds(50));
  rates = {5, 20, 5};
  stream(milliseconds(300));
  EXPECT_EQ(ways.way(), Way::kWidestRing);
}

TEST_F(StreamWaysTest, NothingIsLentToWhoDoesNotFetch) {
  rates = {2, 2, 10};
  may_lend = false;
  begins();
  EXPECT_EQ(stream(seconds(3))[2], 0);
  may_lend = true;
  begins();
  EXPECT_EQ(ways.way(), Way::kLent);
  may_lend = false;
  EXPECT_NE(ways.follow(streamed, now, false), Way::kLent) << "at once";
}

TEST_F(StreamWaysTest, NothingIsTriedForALittle) {
  rates = {2, 20, 20};
  while (streamed < 30u << 20) stream(milliseconds(1));
  EXPECT_EQ(ways.way(), Way::kWideRing);
}

TEST_F(StreamWaysTest, AProgramThatIsNotHeldUpStaysAsItIs) {
  pause = milliseconds(2);  // 128 MB/s
  begins();
  EXPECT_GT(stream(seconds(20))[0], 0.9);
}

TEST_F(StreamWaysTest, AProgramThatPausesInTheMidstOfAComparisonGoesOnWithWhatWasBest) {
  rates = {5, 20, 2};
  begins();
  ASSERT_EQ(ways.way(), Way::kWidestRing);
  for (int i = 0; i < 200; ++i) {
    stream(milliseconds(7));
    now += seconds(1);
    ways.follow(streamed, now, may_lend);
  }
  stream(seconds(2));
  EXPECT_EQ(ways.way(), Way::kWidestRing);
}

}  // namespace
}  // namespace verbena::engine
