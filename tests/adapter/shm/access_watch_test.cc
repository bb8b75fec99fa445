// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/access_watch.h"

#include <atomic>
#include <new>
#include <thread>

#include <gtest/gtest.h>

namespace verbena::engine {
namespace {

using namespace std::chrono_literals;

class Watched : public ::testing::Test {
 protected:
  static std::shared_ptr<ChannelMapping> channel() {
    auto made = ChannelMapping::make();
    if (!made) throw std::bad_alloc();
    return std::make_shared<ChannelMapping>(std::move(made->first));
  }

  AccessWatch watch;
  std::shared_ptr<ChannelMapping> memory = channel();
  shm::Lane& lane = memory->memory().lanes[0];
  std::shared_ptr<AccessWatch::Visitor> visitor = watch.add(memory, lane);
};

TEST_F(Watched, WaitsForNobodyWhoIsNotThere) {
  EXPECT_TRUE(watch.await(0s));
  lane.in_access = 2;
  EXPECT_TRUE(watch.await(0s));
}

TEST_F(Watched, WaitsUntilAnAccessEnds) {
  lane.in_access = 1;
  std::atomic<bool> ended{false};
  std::thread other([&] {
    ended = true;
    lane.in_access = 2;
  });
  EXPECT_TRUE(watch.await(30s));
  EXPECT_TRUE(ended);
  other.join();
}

// The next one began after what is waited for was changed.
TEST_F(Watched, DoesNotWaitForTheNextAccess) {
  lane.in_access = 1;
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) lane.in_access += 2;
  });
  EXPECT_TRUE(watch.await(30s));
  over = true;
  other.join();
}

TEST_F(Watched, GivesUpOnOneThatDoesNotEnd) {
  lane.in_access = 1;
  EXPECT_FALSE(visitor->is_overdue());
  EXPECT_FALSE(watch.await(1ms));
  EXPECT_TRUE(visitor->is_overdue());
}

TEST_F(Watched, ForgetsOneThatIsGone) {
  lane.in_access = 1;
  watch.end(visitor, true);
  EXPECT_TRUE(watch.await(0s));
  EXPECT_EQ(lane.refuses_access, 1u);
}

TEST_F(Watched, WaitsForTheLastAccessOfAChannelThatWasGivenUp) {
  lane.in_access = 1;
  watch.end(visitor, false);
  EXPECT_EQ(lane.refuses_access, 1u);
  EXPECT_FALSE(watch.await(1ms));
  lane.in_access = 2;
  EXPECT_TRUE(watch.await(0s));
  lane.in_access = 3;  // nobody looks any more
  EXPECT_TRUE(watch.await(0s));
}

// Nobody takes memory back here, and so nobody ever waits.
TEST_F(Watched, ChannelsThatWereGivenUpAreNotKeptForWhoNeverLeaves) {
  lane.in_access = 1;
  watch.end(visitor, false);
  std::weak_ptr<ChannelMapping> kept = memory;
  const auto second = channel();
  const auto third = channel();
  watch.add(second, second->memory().lanes[0], 1h);
  visitor.reset();
  memory.reset();
  EXPECT_FALSE(kept.expired()) << "it may be in our memory still";
  watch.add(third, third->memory().lanes[0], 0s);
  EXPECT_TRUE(kept.expired());
}

TEST_F(Watched, AnEndDuringTheWaitEndsIt) {
  lane.in_access = 1;
  std::thread other([&] { watch.end(visitor, true); });
  EXPECT_TRUE(watch.await(30s));
  other.join();
}

// ---- for who cannot wait

TEST_F(Watched, TellsThatNobodyIsThere) {
  EXPECT_EQ(watch.under_way(), 0u);
  lane.in_access = 2;
  EXPECT_EQ(watch.under_way(), 0u);
}

TEST_F(Watched, TellsWhenTheAccessThatWasUnderWayHasEnded) {
  lane.in_access = 1;
  const uint64_t accesses = watch.under_way();
  ASSERT_NE(accesses, 0u);
  EXPECT_FALSE(watch.have_ended(accesses));
  EXPECT_FALSE(watch.have_ended(accesses));
  lane.in_access = 2;
  EXPECT_TRUE(watch.have_ended(accesses));
}

TEST_F(Watched, TheNextAccessIsAnother) {
  lane.in_access = 1;
  const uint64_t accesses = watch.under_way();
  lane.in_access = 3;
  EXPECT_TRUE(watch.have_ended(accesses));
  EXPECT_TRUE(watch.have_ended(accesses));
  const uint64_t later = watch.under_way();
  EXPECT_FALSE(watch.have_ended(later)) << "to who asks now it is the one";
  EXPECT_TRUE(watch.have_ended(accesses));
}

TEST_F(Watched, SeveralMayAskOfOneAccess) {
  lane.in_access = 1;
  const uint64_t first = watch.under_way();
  const uint64_t second = watch.under_way();
  EXPECT_FALSE(watch.have_ended(first));
  EXPECT_FALSE(watch.have_ended(second));
  lane.in_access = 2;
  EXPECT_TRUE(watch.have_ended(second));
  EXPECT_TRUE(watch.have_ended(first));
}

TEST_F(Watched, AllThatWereThereMustHaveEnded) {
  const auto other_memory = channel();
  shm::Lane& other_lane = other_memory->memory().lanes[1];
  const auto other = watch.add(other_memory, other_lane);
  lane.in_access = 1;
  other_lane.in_access = 1;
  const uint64_t accesses = watch.under_way();
  lane.in_access = 2;
  EXPECT_FALSE(watch.have_ended(accesses));
  other_lane.in_access = 3;
  EXPECT_TRUE(watch.have_ended(accesses));
}

TEST_F(Watched, GivesUpOnOneThatIsSeenForTooLong) {
  lane.in_access = 1;
  const uint64_t accesses = watch.under_way();
  EXPECT_FALSE(watch.have_ended(accesses, 1h));
  EXPECT_FALSE(visitor->is_overdue());
  while (!watch.have_ended(accesses, 1ms)) std::this_thread::yield();
  EXPECT_TRUE(visitor->is_overdue());
  EXPECT_EQ(lane.refuses_access, 1u);
  EXPECT_EQ(watch.under_way(), 0u);
}

TEST_F(Watched, AnAccessThatAppearsLaterIsNotHeldAgainstItsProcess) {
  lane.in_access = 1;
  (void)watch.under_way();
  lane.in_access = 2;
  (void)watch.under_way();
  lane.in_access = 1;  // the count has gone round
  const uint64_t accesses = watch.under_way();
  EXPECT_FALSE(watch.have_ended(accesses, 1h));
  EXPECT_FALSE(visitor->is_overdue());
}

TEST_F(Watched, WhoIsGoneIsNotThere) {
  lane.in_access = 1;
  const uint64_t accesses = watch.under_way();
  watch.end(visitor, true);
  EXPECT_TRUE(watch.have_ended(accesses));
  EXPECT_EQ(watch.under_way(), 0u);
}

}  // namespace
}  // namespace verbena::engine
