// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "adapter/congestion/bbr.h"

namespace verbena::congestion {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kRate = 10'000'000;  // bytes per second: 10,000 per millisecond

class SteadyPath {
 public:
  // Delivers `count` acknowledgements of `bytes` each in a round, `apart` from each other.
  void come(uint64_t round, int count, uint64_t bytes, Duration apart) {
    for (int i = 0; i < count; ++i) {
      now_ += apart;
      ack_aggregation_.on_arrival(round, bytes, kRate, now_);
    }
  }
  void wait(Duration time) { now_ += time; }
  double lump() const { return static_cast<double>(ack_aggregation_.get()); }

 private:
  AckAggregation ack_aggregation_;
  TimePoint now_{std::chrono::hours(1)};
};

TEST(AckAggregation, AreSmallWhereBytesArriveEvenly) {
  SteadyPath arrivals;
  arrivals.come(1, 100, 10'000, milliseconds(1));
  EXPECT_NEAR(arrivals.lump(), 10'000, 5);
}

TEST(AckAggregation, HoldWhatHasComeAtOnceAfterAStall) {
  SteadyPath arrivals;
  arrivals.come(1, 100, 10'000, milliseconds(1));
  arrivals.wait(milliseconds(9));
  arrivals.come(1, 10, 10'000, Duration(0));
  // The excess counts from the end of the stall, so it is the whole burst.
  EXPECT_NEAR(arrivals.lump(), 100'000, 5);
}

TEST(AckAggregation, GrowWhileMoreComesThanTheRateExplains) {
  SteadyPath arrivals;
  arrivals.come(1, 11, 20'000, milliseconds(1));
  EXPECT_NEAR(arrivals.lump(), 120'000, 5);
}

TEST(AckAggregation, AreForgottenAfterSomeRounds) {
  SteadyPath arrivals;
  arrivals.come(1, 10, 10'000, Duration(0));
  uint64_t round = 2;
  for (; round <= WindowedMax::kRounds; ++round) arrivals.come(round, 20, 10'000, milliseconds(1));
  EXPECT_NEAR(arrivals.lump(), 100'000, 5);
  for (; round <= 2 * WindowedMax::kRounds; ++round) arrivals.come(round, 20, 10'000, milliseconds(1));
  EXPECT_NEAR(arrivals.lump(), 10'000, 5);
}

}  // namespace
}  // namespace verbena::congestion
