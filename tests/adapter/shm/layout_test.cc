// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/layout.h"

#include <algorithm>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapter/shm/lane_support.h"
#include "base/random.h"
#include "base/seed.h"

namespace verbena::shm {
namespace {

TEST(Channel, IsNoneBeforeItIsFormatted) {
  const Zeroed<ChannelMemory> memory;
  EXPECT_FALSE(is_formatted(*memory));
  format(*memory);
  EXPECT_TRUE(is_formatted(*memory));
}

TEST(Channel, OfAnotherLayoutIsNone) {
  const Zeroed<ChannelMemory> memory;
  format(*memory);
  memory->version = kLayoutVersion + 1;
  EXPECT_FALSE(is_formatted(*memory));
  format(*memory);
  memory->bytes = sizeof(ChannelMemory) - 64;
  EXPECT_FALSE(is_formatted(*memory));
  format(*memory);
  memory->magic = 0;
  EXPECT_FALSE(is_formatted(*memory));
}

TEST(Channel, TakesOnePageUntilItIsUsed) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* at = mmap(nullptr, sizeof(ChannelMemory), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  madvise(at, sizeof(ChannelMemory), MADV_NOHUGEPAGE);  // fails where there are none
  auto& memory = *static_cast<ChannelMemory*>(at);
  format(memory);
  std::vector<unsigned char> resident((sizeof(ChannelMemory) + page - 1) / page);
  ASSERT_EQ(mincore(at, sizeof(ChannelMemory), resident.data()), 0);
  EXPECT_EQ(std::ranges::count_if(resident, [](unsigned char r) { return (r & 1) != 0; }), 1);
  munmap(at, sizeof(ChannelMemory));
}

class PayloadPlaceTest : public testing::TestWithParam<uint32_t> {};

TEST_P(PayloadPlaceTest, IsContiguousAndBeginsAtAUnit) {
  const uint32_t ring = GetParam();
  const uint64_t seed = test::seed();
  Random random(seed);
  uint32_t position = static_cast<uint32_t>(random.next()) & ~(kPayloadUnit - 1);
  for (int i = 0; i < 100'000; ++i) {
    const uint32_t bytes = static_cast<uint32_t>(random.below(kMaxPayload + 1));
    const PayloadPlace place = place_payload(position, bytes, ring);
    ASSERT_EQ(place.begin % kPayloadUnit, 0u);
    ASSERT_GE(place.end - place.begin, bytes);
    ASSERT_LT(place.end - place.begin, bytes + kPayloadUnit);
    ASSERT_LE(place.begin % ring + bytes, ring);
    // What is left out is less than the payload, and only at the end of the ring.
    if (place.begin != position) {
      ASSERT_EQ(place.begin % ring, 0u);
      ASSERT_LT(place.begin - position, bytes);
    }
    position = place.end;
  }
}

INSTANTIATE_TEST_SUITE_P(Rings, PayloadPlaceTest, testing::ValuesIn(kRingBytes));

TEST(PayloadPlace, MayEndWhereTheRingEnds) {
  const PayloadPlace place = place_payload(kRingBytes.back() - 128, 128, kRingBytes.back());
  EXPECT_EQ(place.begin, kRingBytes.back() - 128);
  EXPECT_EQ(place.end, kRingBytes.back());
}

TEST(PayloadPlace, GoesOnWhenPositionsOverflow) {
  const uint32_t last = 0u - 128;
  const PayloadPlace over =
      place_payload(last, 192, kRingBytes.back());  // does not fit before the ring's end
  EXPECT_EQ(over.begin, 0u);
  EXPECT_EQ(over.end, 192u);
  const PayloadPlace exact = place_payload(last, 128, kRingBytes.back());
  EXPECT_EQ(exact.begin, last);
  EXPECT_EQ(exact.end, 0u);
}

}  // namespace
}  // namespace verbena::shm
