// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "adapter/transport/reorder_buffer.h"
#include "base/random.h"

namespace verbena::transport {
namespace {

using roce::Psn;
using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;

Pairs all_from(const PsnRanges& ranges, uint32_t from) {
  Pairs all;
  ranges.for_each(Psn(from), [&](Psn first, Psn limit) {
    all.emplace_back(first.value(), limit.value());
    return true;
  });
  return all;
}

TEST(PsnRanges, MakeOneOfWhatTouches) {
  PsnRanges ranges;
  EXPECT_TRUE(ranges.add(Psn(10), Psn(12)));
  EXPECT_TRUE(ranges.add(Psn(20), Psn(21)));
  EXPECT_TRUE(ranges.add(Psn(0xfffffe), Psn(1)));
  EXPECT_EQ(all_from(ranges, 0xfffff0), (Pairs{{0xfffffe, 1}, {10, 12}, {20, 21}}));
  EXPECT_TRUE(ranges.add(Psn(12), Psn(20)));
  EXPECT_EQ(all_from(ranges, 0xfffff0), (Pairs{{0xfffffe, 1}, {10, 21}}));
  EXPECT_TRUE(ranges.add(Psn(0), Psn(30)));
  EXPECT_EQ(all_from(ranges, 0xfffff0), (Pairs{{0xfffffe, 30}}));
}

TEST(PsnRanges, LoseWhatLiesBefore) {
  PsnRanges ranges;
  for (const uint32_t first : {0xfffffcu, 0u, 4u, 8u}) EXPECT_TRUE(ranges.add(Psn(first), Psn(first) + 2));
  ranges.drop_before(Psn(5));
  EXPECT_EQ(all_from(ranges, 0), (Pairs{{5, 6}, {8, 10}}));
  EXPECT_EQ(all_from(ranges, 9), (Pairs{{9, 10}}));
  ranges.drop_before(Psn(10));
  EXPECT_EQ(ranges.size(), 0u);
}

TEST(PsnRanges, AreNoMoreThanSoMany) {
  PsnRanges ranges;
  for (uint32_t i = 0; i < PsnRanges::kMax; ++i) ASSERT_TRUE(ranges.add(Psn(2 * i), Psn(2 * i + 1)));
  EXPECT_FALSE(ranges.add(Psn(2 * PsnRanges::kMax), Psn(2 * PsnRanges::kMax + 1)));
  EXPECT_EQ(ranges.size(), PsnRanges::kMax);
  EXPECT_TRUE(ranges.add(Psn(1), Psn(2))) << "that makes one fewer";
  EXPECT_EQ(ranges.size(), PsnRanges::kMax - 1);
}

TEST(PsnRanges, AreTheSetOfWhatWasAdded) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    const uint32_t base = static_cast<uint32_t>(random.next()) & 0xffffff;
    PsnRanges ranges;
    std::set<uint32_t> there;  // as distances from the first PSN
    for (int step = 0; step < 300; ++step) {
      const uint32_t first = static_cast<uint32_t>(random.next()) % 500;
      if (random.next() % 16 == 0) {
        ranges.drop_before(Psn(base) + first);
        there.erase(there.begin(), there.lower_bound(first));
        continue;
      }
      const uint32_t count = 1 + static_cast<uint32_t>(random.next()) % 8;
      ASSERT_TRUE(ranges.add(Psn(base) + first, Psn(base) + first + count));
      for (uint32_t i = 0; i < count; ++i) there.insert(first + i);
      std::set<uint32_t> told;
      ranges.for_each(Psn(base), [&](Psn from, Psn limit) {
        for (Psn psn = from; psn != limit; ++psn) {
          told.insert(static_cast<uint32_t>(psn - Psn(base)));
        }
        EXPECT_FALSE(told.contains(static_cast<uint32_t>(limit - Psn(base))));
        return true;
      });
      ASSERT_EQ(told, there) << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace verbena::transport
