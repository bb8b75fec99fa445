// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <gtest/gtest.h>

#include "adapter/transport/packet_io.h"

namespace verbena::transport {
namespace {

using roce::Psn;

class BlockPinsTest : public testing::Test {
 protected:
  static BlockPin::Count block() { return std::make_shared<std::atomic<uint32_t>>(0); }
  BlockPins pins;
};

TEST(BlockPin, CountsForAsLongAsItLives) {
  const auto block = std::make_shared<std::atomic<uint32_t>>(0);
  {
    BlockPin pin(block);
    const BlockPin other = pin.again();
    EXPECT_EQ(*block, 2u);
    BlockPin moved = std::move(pin);
    EXPECT_EQ(*block, 2u);
    EXPECT_TRUE(moved);
    moved = BlockPin();
    EXPECT_FALSE(moved);
    EXPECT_EQ(*block, 1u);
  }
  EXPECT_EQ(*block, 0u);
}

TEST_F(BlockPinsTest, AreHeldUntilThePsnIsReached) {
  const auto first = block(), second = block();
  ASSERT_TRUE(pins.hold(Psn(0xfffffe), BlockPin(first)));
  ASSERT_TRUE(pins.hold(Psn(2), BlockPin(second)));
  pins.release_before(Psn(0xfffffd));
  EXPECT_EQ(*first, 1u);
  pins.release_before(Psn(0xfffffe));
  EXPECT_EQ(*first, 0u);
  pins.release_before(Psn(1));
  EXPECT_EQ(*second, 1u);
  pins.release_before(Psn(5));
  EXPECT_EQ(*second, 0u);
}

TEST_F(BlockPinsTest, AreOneForABlockThatTheNextTrainFills) {
  const auto first = block();
  ASSERT_TRUE(pins.hold(Psn(10), BlockPin(first)));
  ASSERT_TRUE(pins.hold(Psn(20), BlockPin(first)));
  EXPECT_EQ(pins.count(), 1u);
  pins.release_before(Psn(10));
  EXPECT_EQ(*first, 1u);
  pins.release_before(Psn(20));
  EXPECT_EQ(*first, 0u);
}

TEST_F(BlockPinsTest, AreNoMoreThanSoMany) {
  std::vector<BlockPin::Count> blocks;
  for (uint32_t i = 0; i < BlockPins::kMax; ++i) {
    blocks.push_back(block());
    ASSERT_TRUE(pins.hold(Psn(i), BlockPin(blocks.back())));
  }
  const auto another = block();
  EXPECT_FALSE(pins.hold(Psn(1000), BlockPin(another)));
  EXPECT_EQ(*another, 0u);
  pins.release_before(Psn(0));
  EXPECT_TRUE(pins.hold(Psn(1000), BlockPin(another)));
  EXPECT_EQ(*another, 1u);
  pins.clear();
  for (const auto& each : blocks) EXPECT_EQ(*each, 0u);
  EXPECT_EQ(*another, 0u);
}

TEST_F(BlockPinsTest, AreGoneWithTheirOwner) {
  const auto first = block();
  {
    BlockPins own;
    ASSERT_TRUE(own.hold(Psn(1), BlockPin(first)));
    EXPECT_EQ(*first, 1u);
  }
  EXPECT_EQ(*first, 0u);
}

}  // namespace
}  // namespace verbena::transport
