// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "adapter/queues/shared_receive_queue.h"
#include "base/random.h"

namespace verbena::queues {
namespace {

constexpr uint64_t kExact = UINT64_MAX;

class TagListTest : public testing::Test {
 protected:
  uint32_t add(uint64_t tag, uint64_t mask = kExact) {
    ibv_sge sge{0x1000 * ++next_, 64, 7};
    auto handle = list_->add({tag, mask, next_, {&sge, 1}});
    EXPECT_TRUE(handle.has_value());
    return handle.value_or(0);
  }
  // Returns the wr_id of the buffer that matches the tag; 0 for none.
  uint64_t take(uint64_t tag) {
    HeldReceive held{};
    return list_->take(tag, held) ? held.wqe.wr_id : 0;
  }

  std::unique_ptr<TagList> list_ = *TagList::create(8);
  uint64_t next_ = 0;
};

TEST_F(TagListTest, FindsTheBufferOfATag) {
  add(10);
  add(20);
  add(30);
  EXPECT_EQ(take(20), 2u);
  EXPECT_EQ(take(20), 0u);
  EXPECT_EQ(take(10), 1u);
  EXPECT_EQ(take(30), 3u);
}

TEST_F(TagListTest, GivesTheBufferWithItsPieces) {
  add(10);
  HeldReceive held{};
  ASSERT_TRUE(list_->take(10, held));
  ASSERT_EQ(held.wqe.num_sge, 1u);
  EXPECT_EQ(held.wqe.sges()[0].addr, 0x1000u);
}

TEST_F(TagListTest, TakesTheOldestThatMatches) {
  add(7);
  add(7);
  EXPECT_EQ(take(7), 1u);
  EXPECT_EQ(take(7), 2u);
}

TEST_F(TagListTest, ComparesOnlyWhatTheMaskSays) {
  add(0x34, 0xff);
  EXPECT_EQ(take(0x1235), 0u);
  EXPECT_EQ(take(0x1234), 1u);
}

TEST_F(TagListTest, IsFullAtItsCapacityAndNotBefore) {
  for (uint64_t tag = 0; tag < 8; ++tag) add(tag);
  EXPECT_EQ(list_->add({9, kExact, 9, {}}).error().code, ENOMEM);
  EXPECT_EQ(take(3), 4u);
  add(9);
  EXPECT_EQ(list_->add({9, kExact, 9, {}}).error().code, ENOMEM);
}

TEST_F(TagListTest, RemovesByHandleOnce) {
  const uint32_t handle = add(1);
  add(2);
  EXPECT_TRUE(list_->remove(handle));
  EXPECT_FALSE(list_->remove(handle));
  EXPECT_EQ(take(1), 0u);
  EXPECT_EQ(take(2), 2u);
}

TEST_F(TagListTest, KnowsTheHandleOfABufferThatAMessageTookNoMore) {
  const uint32_t handle = add(1);
  EXPECT_EQ(take(1), 1u);
  EXPECT_FALSE(list_->remove(handle));
  // The old handle stays invalid when its place has been reused.
  add(1);
  EXPECT_FALSE(list_->remove(handle));
  EXPECT_EQ(take(1), 2u);
}

TEST_F(TagListTest, KnowsNoInventedHandle) {
  EXPECT_FALSE(list_->remove(0));
  EXPECT_FALSE(list_->remove(UINT32_MAX));
  add(1);
  EXPECT_FALSE(list_->remove(1));
}

TEST_F(TagListTest, BuffersAddedBehindAnUnexpectedMessageWaitForSoftware) {
  add(1);
  list_->count_unexpected();
  EXPECT_FALSE(list_->is_synchronized());
  add(2);
  EXPECT_EQ(take(2), 0u);
  EXPECT_EQ(take(1), 1u) << "what was there before goes on matching";
  list_->synchronize(1);
  EXPECT_TRUE(list_->is_synchronized());
  EXPECT_EQ(take(2), 2u);
}

TEST_F(TagListTest, SynchronizationMustReachTheLastUnexpectedMessage) {
  list_->count_unexpected();
  list_->count_unexpected();
  add(1);
  list_->synchronize(1);
  EXPECT_EQ(take(1), 0u);
  list_->synchronize(2);
  EXPECT_EQ(take(1), 1u);
}

TEST(TagList, RefusesSizesItCannotHave) {
  EXPECT_EQ(TagList::create(0).error().code, EINVAL);
  EXPECT_EQ(TagList::create((1u << 16) + 1).error().code, EINVAL);
}

// Compares with a plain list, over thousands of operations.
TEST(TagList, BehavesLikeAListSearchedFromItsBeginning) {
  struct Model {
    uint64_t tag, mask, wr_id;
    uint32_t handle;
  };
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    auto list = *TagList::create(32);
    std::vector<Model> model;
    for (uint64_t step = 1; step < 2000; ++step) {
      const uint64_t tag = random.next() % 16;
      const uint64_t mask = random.next() % 4 == 0 ? 0x3 : kExact;
      switch (random.next() % 3) {
        case 0: {
          const auto handle = list->add({tag & mask, mask, step, {}});
          ASSERT_EQ(handle.has_value(), model.size() < 32);
          if (handle) model.push_back({tag & mask, mask, step, *handle});
          break;
        }
        case 1: {
          HeldReceive held{};
          const bool found = list->take(tag, held);
          const auto at = std::find_if(model.begin(), model.end(),
                                       [&](const Model& m) { return (tag & m.mask) == m.tag; });
          ASSERT_EQ(found, at != model.end());
          if (found) {
            ASSERT_EQ(held.wqe.wr_id, at->wr_id);
            model.erase(at);
          }
          break;
        }
        default: {
          if (model.empty()) break;
          const auto at = model.begin() + static_cast<ptrdiff_t>(random.next() % model.size());
          ASSERT_TRUE(list->remove(at->handle));
          model.erase(at);
        }
      }
    }
  }
}

}  // namespace
}  // namespace verbena::queues
