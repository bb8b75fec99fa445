// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/shard_dealing.h"

#include <array>

#include <gtest/gtest.h>

namespace verbena::engine {
namespace {

TEST(ShardDealing, HasAShardForEachTwoProcessors) {
  EXPECT_EQ(max_shards(std::nullopt, 0), 1u);
  EXPECT_EQ(max_shards(std::nullopt, 1), 1u);
  EXPECT_EQ(max_shards(std::nullopt, 2), 1u);
  EXPECT_EQ(max_shards(std::nullopt, 4), 2u);
  EXPECT_EQ(max_shards(std::nullopt, 7), 3u);
  EXPECT_EQ(max_shards(std::nullopt, 256), kMaxShards);
}

TEST(ShardDealing, HasAsManyShardsAsTheUserAsksFor) {
  EXPECT_EQ(max_shards("1", 64), 1u);
  EXPECT_EQ(max_shards("4", 2), 4u);
  EXPECT_EQ(max_shards("8", 1), 8u);
}

TEST(ShardDealing, PassesOverAWishThatIsNoNumberOfShards) {
  for (const char* wish : {"", "0", "9", "-1", "2x", " 2", "many", "99999999999999999999"})
    EXPECT_EQ(max_shards(wish, 4), 2u) << wish;
}

TEST(ShardDealing, TakesAShardWithoutQpsBeforeItStartsAnother) {
  EXPECT_EQ(deal(std::array{0u}, 4), 0u);
  EXPECT_EQ(deal(std::array{3u, 0u}, 4), 1u);
}

TEST(ShardDealing, StartsAnotherWhileAllAreUsedAndThereMayBeMore) {
  EXPECT_EQ(deal(std::array{1u}, 2), 1u);
  EXPECT_EQ(deal(std::array{1u, 7u}, 3), 2u);
}

TEST(ShardDealing, TakesTheLeastUsedWhenThereMayBeNoMore) {
  EXPECT_EQ(deal(std::array{5u}, 1), 0u);
  EXPECT_EQ(deal(std::array{5u, 4u, 9u}, 3), 1u);
  EXPECT_EQ(deal(std::array{4u, 4u}, 2), 0u) << "the first among equals";
}

}  // namespace
}  // namespace verbena::engine
