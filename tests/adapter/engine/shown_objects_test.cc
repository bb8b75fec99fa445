// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/shown_objects.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "adapter/engine/qp_round.h"

namespace verbena::engine {
namespace {

using protocol::ObjectKind;

class ShownObjectsTest : public testing::Test {
 protected:
  uint64_t kind_at(uint32_t place) const { return page_->objects[place].kind.load(); }
  uint64_t count_of(ObjectKind kind) const {
    return page_->object_counts.of_kind[static_cast<size_t>(kind)].load();
  }

  std::unique_ptr<protocol::StatusPage> page_ = std::make_unique<protocol::StatusPage>();
  ShownObjects objects_{3, *page_};
};

TEST_F(ShownObjectsTest, ListsAnObjectUntilItsEntryGoes) {
  {
    ShownObjects::Entry pd = objects_.add(ObjectKind::kPd, 7, {11, 0});
    EXPECT_EQ(pd.number(), protocol::number_of(3, 0));
    EXPECT_EQ(kind_at(0), static_cast<uint64_t>(ObjectKind::kPd));
    EXPECT_EQ(page_->objects[0].device_index.load(), 7u);
    pd.add(protocol::kPdUsers, +1);
    pd.add(protocol::kPdUsers, +1);
    pd.add(protocol::kPdUsers, -1);
    EXPECT_EQ(page_->objects[0].values[protocol::kPdUsers].load(), 1u);
    EXPECT_EQ(count_of(ObjectKind::kPd), 1u);
  }
  EXPECT_EQ(kind_at(0), 0u);
  EXPECT_EQ(count_of(ObjectKind::kPd), 0u);
}

TEST_F(ShownObjectsTest, APlaceIsUsedAgainWithNothingOfTheOneBefore) {
  objects_.add(ObjectKind::kMr, 1, {1, 2, 3, 4, 5}) = {};
  const ShownObjects::Entry cq = objects_.add(ObjectKind::kCq, 2, {9});
  EXPECT_EQ(cq.number(), protocol::number_of(3, 0));
  EXPECT_EQ(page_->objects[0].values[4].load(), 0u);
  EXPECT_EQ(page_->object_counts.places.load(), 1u);
}

TEST_F(ShownObjectsTest, WhatTheListHasNoRoomForIsCounted) {
  std::vector<ShownObjects::Entry> entries;
  for (size_t i = 0; i < protocol::kObjectsPerSlot + 2; ++i) {
    entries.push_back(objects_.add(ObjectKind::kMr, 1, {}));
  }
  EXPECT_EQ(entries.back().number(), 0u);
  entries.back().set(0, 1);  // harms nothing
  EXPECT_EQ(count_of(ObjectKind::kMr), protocol::kObjectsPerSlot + 2);
  entries.clear();
  EXPECT_EQ(count_of(ObjectKind::kMr), 0u);
}

TEST_F(ShownObjectsTest, AMovedEntryIsListedOnce) {
  ShownObjects::Entry one = objects_.add(ObjectKind::kSrq, 1, {});
  ShownObjects::Entry other = std::move(one);
  one = {};
  EXPECT_EQ(count_of(ObjectKind::kSrq), 1u);
  other = {};
  EXPECT_EQ(count_of(ObjectKind::kSrq), 0u);
}

TEST(QpRound, VisitsAllThatAreTakenInTurn) {
  QpRound round;
  for (const uint32_t index : {0u, 63u, 64u, 16383u}) round.add(index);
  std::vector<uint32_t> visited;
  for (int i = 0; i < 5; ++i) visited.push_back(round.next());
  EXPECT_EQ(visited, (std::vector<uint32_t>{63, 64, 16383, 0, 63}));
  for (const uint32_t index : {0u, 63u, 64u}) round.remove(index);
  EXPECT_EQ(round.next(), 16383u);
  EXPECT_EQ(round.next(), 16383u);
}

}  // namespace
}  // namespace verbena::engine
