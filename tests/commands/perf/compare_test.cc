// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/compare.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace verbena::perf {
namespace {

TEST(PerfCompare, EstimatesTheMeanWithStudentsInterval) {
  const Estimate found = estimate({9, 10, 11});
  EXPECT_DOUBLE_EQ(found.mean, 10);
  EXPECT_NEAR(found.margin, 4.303 * 1 / 1.7320508, 1e-3);
  EXPECT_EQ(estimate({}).margin, 0);
}

// About one interval in twenty misses the true difference.
TEST(PerfCompare, IntervalsHoldTheTrueDifferenceAsOftenAsTheySay) {
  std::mt19937 random(3);
  std::normal_distribution<double> first(100, 5), second(110, 9);
  int held = 0;
  constexpr int kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> a, b;
    for (int i = 0; i < 20; ++i) {
      a.push_back(first(random));
      b.push_back(second(random));
    }
    const Estimate found = relative_difference(a, b);
    if (found.mean - found.margin <= 0.1 && 0.1 <= found.mean + found.margin) ++held;
  }
  EXPECT_GT(held, kRounds * 92 / 100);
  EXPECT_LT(held, kRounds * 98 / 100);
}

TEST(PerfCompare, EqualPartsHaveNoInterval) {
  const Estimate found = relative_difference({2, 2, 2}, {3, 3, 3});
  EXPECT_DOUBLE_EQ(found.mean, 0.5);
  EXPECT_DOUBLE_EQ(found.margin, 0);
}

}  // namespace
}  // namespace verbena::perf
