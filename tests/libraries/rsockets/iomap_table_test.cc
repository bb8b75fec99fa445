// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "libraries/rsockets/stream_protocol.h"

namespace verbena::rsockets {
namespace {

class IomapTableTest : public ::testing::Test {
 protected:
  void peer_writes(size_t entry, const IomapEntry& value) {
    std::memcpy(&memory_[entry * IomapEntry::kBytes], value.encode(kOwnOrder).data(), IomapEntry::kBytes);
  }

  std::vector<std::byte> memory_{4 * IomapEntry::kBytes};
  IomapTable table_{memory_.data(), 4};
};

TEST_F(IomapTableTest, FindsNothingWhereNothingIsMapped) {
  EXPECT_EQ(table_.find(0), std::nullopt);
  peer_writes(2, {100, {5000, 7, 50}});
  EXPECT_EQ(table_.find(99), std::nullopt);
  EXPECT_EQ(table_.find(150), std::nullopt);
}

TEST_F(IomapTableTest, GivesThePartFromTheOffsetOn) {
  peer_writes(2, {100, {5000, 7, 50}});
  EXPECT_EQ(table_.find(100), (BufferAddress{5000, 7, 50}));
  EXPECT_EQ(table_.find(149), (BufferAddress{5049, 7, 1}));
}

TEST_F(IomapTableTest, FirstEntryThatMatchesCounts) {
  peer_writes(0, {100, {1000, 1, 10}});
  peer_writes(1, {100, {2000, 2, 20}});
  EXPECT_EQ(table_.find(105)->key, 1u);
  EXPECT_EQ(table_.find(115)->key, 2u);
}

TEST_F(IomapTableTest, OffsetsNearTheEndOfTheNumbersDoNotWrap) {
  const uint64_t top = std::numeric_limits<uint64_t>::max();
  peer_writes(0, {top - 1, {5000, 7, 100}});
  EXPECT_EQ(table_.find(5), std::nullopt);
  EXPECT_TRUE(table_.find(top));
}

}  // namespace
}  // namespace verbena::rsockets
