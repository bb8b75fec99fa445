// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>

#include <gtest/gtest.h>

#include "libraries/rsockets/stream_protocol.h"

namespace verbena::rsockets {
namespace {

class GrantTableTest : public ::testing::Test {
 protected:
  void peer_writes(size_t entry, const BufferAddress& buffer) {
    std::memcpy(&memory_[entry * BufferAddress::kBytes], buffer.encode(kOwnOrder).data(),
                BufferAddress::kBytes);
  }

  alignas(16) std::array<std::byte, GrantTable::kBytes> memory_{};
  GrantTable table_{memory_.data()};
};

TEST_F(GrantTableTest, IsEmptyAtFirst) {
  EXPECT_EQ(table_.take(), std::nullopt);
}

TEST_F(GrantTableTest, BeginsWithTheSecondEntryAsTheFirstCameWithTheConnection) {
  const BufferAddress first{1000, 1, 10};
  const BufferAddress second{2000, 1, 10};
  peer_writes(0, second);
  EXPECT_EQ(table_.take(), std::nullopt);
  peer_writes(1, first);
  EXPECT_EQ(table_.take(), first);
  EXPECT_EQ(table_.take(), second);
}

TEST_F(GrantTableTest, HandsOutEachGrantOnce) {
  peer_writes(1, {1000, 1, 10});
  EXPECT_TRUE(table_.take());
  EXPECT_EQ(table_.take(), std::nullopt);
}

TEST_F(GrantTableTest, TurnsForever) {
  for (uint64_t i = 1; i < 100; ++i) {
    peer_writes(i % 2, {i, 1, 10});
    EXPECT_EQ(table_.take(), (BufferAddress{i, 1, 10}));
  }
}

}  // namespace
}  // namespace verbena::rsockets
