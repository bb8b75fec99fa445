// SPDX-License-Identifier: Apache-2.0
#include "base/bulk_copy.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace verbena {
namespace {

constexpr size_t kPageBytes = 4096;

struct Pages {
  alignas(kPageBytes) std::byte bytes[3 * kPageBytes]{};
};

TEST(BulkCopy, KnowsWhichPlacesAreSlow) {
  const Pages pages;
  const std::byte* const page = pages.bytes;
  const std::byte* const next = page + kPageBytes;
  for (const size_t after : {1, 16, 31}) {
    EXPECT_TRUE(is_slow_in_bulk(page + after, page)) << after;
    EXPECT_TRUE(is_slow_in_bulk(page + after, next)) << after;
    EXPECT_TRUE(is_slow_in_bulk(next + 7 + after, page + 7)) << after;
    EXPECT_FALSE(is_slow_in_bulk(page, page + after)) << after;
  }
  for (const size_t after : {0, 32, 64, 2048, 4095})
    EXPECT_FALSE(is_slow_in_bulk(page + after, page)) << after;
}

TEST(BulkCopy, CopiesAllOfItAndNothingElseFromAnyPlace) {
  std::vector<std::byte> from(2 * kPageBytes + 64), to(from.size() + 64);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const size_t bytes : {0ul, 1ul, 2047ul, 2048ul, 2049ul, 4096ul, 4097ul, 2 * kPageBytes}) {
    for (size_t after = 0; after < 34; ++after) {
      std::ranges::fill(to, std::byte{0xee});
      copy_bulk(to.data() + after, from.data(), bytes);
      EXPECT_TRUE(std::equal(from.begin(), from.begin() + static_cast<ptrdiff_t>(bytes),
                             to.begin() + static_cast<ptrdiff_t>(after)));
      const auto untouched = [](std::byte byte) { return byte == std::byte{0xee}; };
      EXPECT_TRUE(std::all_of(to.begin(), to.begin() + static_cast<ptrdiff_t>(after), untouched));
      EXPECT_TRUE(std::all_of(to.begin() + static_cast<ptrdiff_t>(after + bytes), to.end(), untouched));
    }
  }
}

}  // namespace
}  // namespace verbena
