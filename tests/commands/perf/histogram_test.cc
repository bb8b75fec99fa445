// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/histogram.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace verbena::perf {
namespace {

TEST(PerfHistogram, KeepsAnyNumberWithinThreePercent) {
  for (int shift = 0; shift < 64; ++shift) {
    for (const std::uint64_t value :
         {std::uint64_t{1} << shift, (std::uint64_t{1} << shift) - 1, ~std::uint64_t{0} >> shift}) {
      const auto histogram = std::make_unique<Histogram>();
      histogram->add(value);
      int buckets = 0;
      histogram->for_each([&](std::uint64_t lower, std::uint64_t upper, std::uint64_t count) {
        ++buckets;
        EXPECT_EQ(count, 1U);
        EXPECT_LE(lower, value);
        EXPECT_GE(upper, value);
        EXPECT_LE(upper - lower, lower / 32) << value;
      });
      EXPECT_EQ(buckets, 1);
      EXPECT_EQ(histogram->percentile(0.5), value);
      EXPECT_EQ(histogram->largest(), value);
    }
  }
}

TEST(PerfHistogram, HasPercentilesOfTheSortedNumbers) {
  std::minstd_rand random(7);
  std::vector<std::uint64_t> all;
  const auto histogram = std::make_unique<Histogram>();
  for (int i = 0; i < 10000; ++i) {
    all.push_back(random() % (1U << (random() % 30)));
    histogram->add(all.back());
  }
  std::ranges::sort(all);
  EXPECT_EQ(histogram->count(), all.size());
  for (const double part : {0.5, 0.9, 0.99, 0.999, 0.9999, 1.0}) {
    const auto index = static_cast<std::size_t>(std::ceil(part * 10000)) - 1;
    EXPECT_GE(histogram->percentile(part), all[index]);
    EXPECT_LE(histogram->percentile(part), all[index] + all[index] / 32 + 1);
  }
}

}  // namespace
}  // namespace verbena::perf
