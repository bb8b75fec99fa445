// SPDX-License-Identifier: Apache-2.0
#include "preload/malloc/extents.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace verbena::heap {
namespace {

constexpr size_t kMax = 16;
constexpr uint32_t kWindow = 1000;

class ExtentsTest : public testing::Test {
 protected:
  ExtentsTest() { extents.set_window(kWindow); }

  uint32_t take(uint32_t pages) { return extents.take(pages, pages, 1)->page; }
  void keep(uint32_t page) { extents.keep(*extents.find(page)); }

  std::array<Extent, kMax> table{};
  Extents extents{table.data(), table.size()};
};

TEST_F(ExtentsTest, BlocksLieOneBehindTheOther) {
  EXPECT_EQ(take(10), 0u);
  EXPECT_EQ(take(5), 10u);
  EXPECT_EQ(take(1), 15u);
  EXPECT_EQ(extents.find(10)->pages, 5u);
}

TEST_F(ExtentsTest, OnlyTheBeginningOfABlockIsFound) {
  take(10);
  EXPECT_NE(extents.find(0), nullptr);
  EXPECT_EQ(extents.find(1), nullptr);
  EXPECT_EQ(extents.find(10), nullptr);
}

TEST_F(ExtentsTest, EachPageOfABlockIsKnown) {
  take(10);
  const uint32_t second = take(5);
  take(1);
  EXPECT_EQ(extents.containing(9)->page, 0u);
  EXPECT_EQ(extents.containing(12)->page, second);
  EXPECT_EQ(extents.containing(16), nullptr);
  keep(second);
  EXPECT_EQ(extents.containing(12), nullptr);
}

TEST_F(ExtentsTest, TheFirstPlaceWithRoomIsTaken) {
  take(10);
  const uint32_t hole = take(4);
  take(10);
  extents.erase(*extents.find(hole));
  EXPECT_EQ(take(5), 24u);
  EXPECT_EQ(take(4), hole);
}

TEST_F(ExtentsTest, BlocksAreAligned) {
  take(1);
  EXPECT_EQ(extents.take(3, 3, 64)->page, 64u);
  EXPECT_EQ(take(3), 1u);
}

TEST_F(ExtentsTest, NothingIsTakenBeyondTheWindow) {
  EXPECT_FALSE(extents.take(kWindow + 1, kWindow + 1, 1));
  EXPECT_FALSE(extents.take(1, kWindow + 1, 1));
  EXPECT_EQ(take(kWindow), 0u);
  EXPECT_FALSE(extents.take(1, 1, 1));
}

TEST_F(ExtentsTest, TheTableMayBeFull) {
  for (size_t i = 0; i < kMax; ++i) take(1);
  EXPECT_FALSE(extents.take(1, 1, 1));
  extents.erase(*extents.find(7));
  EXPECT_EQ(take(1), 7u);
}

TEST_F(ExtentsTest, AKeptBlockIsTheNextOnes) {
  const uint32_t first = take(10);
  keep(first);
  EXPECT_EQ(extents.kept_pages(), 10u);
  EXPECT_EQ(extents.find(first), nullptr);
  const auto next = extents.take(10, 10, 1);
  EXPECT_TRUE(next->was_kept);
  EXPECT_EQ(next->page, first);
  EXPECT_EQ(extents.kept_pages(), 0u);
  EXPECT_FALSE(extents.take(10, 10, 1)->was_kept);
}

TEST_F(ExtentsTest, AKeptBlockThatIsMuchLargerIsLeft) {
  const uint32_t large = take(100);
  keep(large);
  EXPECT_FALSE(extents.take(80, 80, 1)->was_kept);
  const auto near = extents.take(95, 95, 1);
  EXPECT_TRUE(near->was_kept);
  EXPECT_EQ(extents.find(near->page)->pages, 100u);
}

TEST_F(ExtentsTest, AKeptBlockElsewhereThanAlignedIsLeft) {
  take(1);
  keep(take(64));
  const auto aligned = extents.take(64, 64, 64);
  EXPECT_FALSE(aligned->was_kept);
  EXPECT_EQ(aligned->page % 64, 0u);
}

TEST_F(ExtentsTest, WhatWasKeptFirstIsTheOldest) {
  const uint32_t one = take(1);
  const uint32_t two = take(2);
  keep(two);
  keep(one);
  take(10);
  EXPECT_EQ(extents.oldest_kept()->page, two);
  EXPECT_EQ(extents.last_kept()->page, two);
  extents.erase(*extents.oldest_kept());
  EXPECT_EQ(extents.oldest_kept()->page, one);
  EXPECT_EQ(extents.last_kept()->page, one);
  extents.erase(*extents.oldest_kept());
  EXPECT_EQ(extents.oldest_kept(), nullptr);
  EXPECT_EQ(extents.last_kept(), nullptr);
  EXPECT_EQ(extents.kept_pages(), 0u);
}

TEST_F(ExtentsTest, ABlockGrowsAsFarAsThereIsRoom) {
  const uint32_t block = take(10);
  EXPECT_TRUE(extents.grow(*extents.find(block), 20));
  EXPECT_EQ(take(1), 20u);
  EXPECT_FALSE(extents.grow(*extents.find(block), 21));
  EXPECT_EQ(extents.find(block)->pages, 20u);
  EXPECT_TRUE(extents.grow(*extents.find(20), kWindow - 20));
  EXPECT_FALSE(extents.grow(*extents.find(20), kWindow - 19));
}

TEST_F(ExtentsTest, RoomIsLeftToABlockThatAsksForIt) {
  extents.take(10, 20, 1);
  EXPECT_EQ(take(1), 20u);
  EXPECT_TRUE(extents.grow(*extents.find(0), 20));
}

TEST_F(ExtentsTest, ABarredPlaceIsNobodys) {
  const uint32_t block = take(10);
  extents.bar(*extents.find(block));
  EXPECT_EQ(extents.find(block), nullptr);
  EXPECT_EQ(take(10), 10u);
  extents.erase(*extents.at(block));
  EXPECT_EQ(take(10), block);
}

// Random calls of an allocator, compared with a list of the pages of each block.
class History {
 public:
  History() : extents_(table_.data(), table_.size()) { extents_.set_window(kWindow); }

  void step(uint8_t what, uint16_t how) {
    switch (what % 5) {
      case 0:
      case 1:
        take(1 + how % 60, 1u << (how % 4), how % 3 == 0);
        break;
      case 2:
        end(how, &History::keep);
        break;
      case 3:
        end(how, &History::erase);
        break;
      default:
        grow(how);
    }
    check();
  }

 private:
  void take(uint32_t pages, uint32_t alignment, bool grows) {
    const uint32_t room = grows ? 2 * pages : pages;
    const auto taken = extents_.take(pages, room, alignment);
    if (!taken) {
      RC_ASSERT(extents_.size() == kMax || !has_room(room, alignment));
      return;
    }
    RC_ASSERT(taken->page % alignment == 0u);
    RC_ASSERT(!blocks_.contains(taken->page));
    const auto kept = kept_.find(taken->page);
    RC_ASSERT(taken->was_kept == (kept != kept_.end()));
    const uint32_t has = taken->was_kept ? kept->second : pages;
    RC_ASSERT(has >= pages);
    if (taken->was_kept) kept_.erase(kept);
    blocks_[taken->page] = has;
  }

  void keep(uint32_t page) {
    kept_[page] = blocks_[page];
    extents_.keep(*extents_.find(page));
  }
  void erase(uint32_t page) { extents_.erase(*extents_.find(page)); }

  void end(uint16_t which, void (History::*how)(uint32_t)) {
    if (blocks_.empty()) return;
    const uint32_t page = std::next(blocks_.begin(), which % static_cast<int>(blocks_.size()))->first;
    (this->*how)(page);
    blocks_.erase(page);
  }

  void grow(uint16_t which) {
    if (blocks_.empty()) return;
    auto& [page, pages] = *std::next(blocks_.begin(), which % static_cast<int>(blocks_.size()));
    if (extents_.grow(*extents_.find(page), pages + 5)) pages += 5;
  }

  bool has_room(uint32_t room, uint32_t alignment) {
    for (uint32_t at = 0; at + room <= kWindow; at += alignment) {
      if (std::none_of(extents_.begin(), extents_.end(), [&](const Extent& extent) {
            return extent.page < at + room && at < extent.page + extent.room;
          })) {
        return true;
      }
    }
    return false;
  }

  void check() {
    uint32_t end = 0;
    for (const Extent& extent : extents_) {
      RC_ASSERT(extent.page >= end);
      RC_ASSERT(extent.room >= extent.pages);
      end = extent.page + extent.room;
    }
    RC_ASSERT(end <= kWindow);
    RC_ASSERT(extents_.size() == blocks_.size() + kept_.size());
    for (const auto& [page, pages] : blocks_) RC_ASSERT(extents_.find(page)->pages == pages);
    uint32_t kept = 0;
    for (const auto& [page, pages] : kept_) {
      RC_ASSERT(extents_.find(page) == nullptr);
      kept += pages;
    }
    RC_ASSERT(extents_.kept_pages() == kept);
    RC_ASSERT(extents_.kept_blocks() == kept_.size());
  }

  std::array<Extent, kMax> table_{};
  Extents extents_;
  std::map<uint32_t, uint32_t> blocks_;  // first page -> number of pages
  std::map<uint32_t, uint32_t> kept_;
};

TEST(ExtentsHistory, BlocksNeverOverlapAndNoneIsForgotten) {
  EXPECT_TRUE(rc::check([](const std::vector<std::pair<uint8_t, uint16_t>>& steps) {
    History history;
    for (const auto& [what, how] : steps) history.step(what, how);
  }));
}

}  // namespace
}  // namespace verbena::heap
