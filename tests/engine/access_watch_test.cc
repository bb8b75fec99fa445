// SPDX-License-Identifier: Apache-2.0
#include "engine/access_watch.h"

#include <atomic>
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
  local::Lane& lane = memory->memory().lanes[0];
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

TEST_F(Watched, AnEndDuringTheWaitEndsIt) {
  lane.in_access = 1;
  std::thread other([&] { watch.end(visitor, true); });
  EXPECT_TRUE(watch.await(30s));
  other.join();
}

}  // namespace
}  // namespace verbena::engine
