// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/polled_sets.h"

#include <array>
#include <cerrno>

#include <gtest/gtest.h>

namespace verbena::engine {
namespace {

constexpr int kSet = 7;
constexpr int kOther = 9;

class PolledSetsTest : public testing::Test {
 protected:
  // The thread sleeps, and wakes when the set with this index is ready; -1: it wakes for another reason.
  // Returns the number of sets that it polls.
  size_t sleep(int ready = -1, short events = POLLIN) {
    const size_t count = sets.begin_sleep(entries);
    if (ready >= 0) entries[static_cast<size_t>(ready)].revents = events;
    sets.end_sleep(std::span(entries).first(count));
    return count;
  }

  PolledSets sets;
  std::array<pollfd, PolledSets::kMax> entries{};
};

TEST_F(PolledSetsTest, ArePolledFromTheBeginning) {
  ASSERT_TRUE(sets.add(kSet));
  ASSERT_TRUE(sets.add(kOther));
  ASSERT_EQ(sleep(), 2u);
  EXPECT_EQ(entries[0].fd, kSet);
  EXPECT_EQ(entries[1].fd, kOther);
  EXPECT_EQ(entries[0].events, POLLIN);
}

TEST_F(PolledSetsTest, AreReportedOnceUntilTheThreadListensAgain) {
  ASSERT_TRUE(sets.add(kSet));
  EXPECT_EQ(sleep(/*ready=*/0), 1u);
  EXPECT_EQ(sleep(), 0u);
  EXPECT_FALSE(sets.listen()) << "the thread is awake";
  EXPECT_EQ(sleep(), 1u);
}

TEST_F(PolledSetsTest, WakeAThreadThatSleepsWithoutThem) {
  ASSERT_TRUE(sets.add(kSet));
  sleep(/*ready=*/0);
  ASSERT_EQ(sets.begin_sleep(entries), 0u);
  EXPECT_TRUE(sets.listen());
  EXPECT_FALSE(sets.listen()) << "it has been woken";
}

TEST_F(PolledSetsTest, WakeNoThreadThatPollsThem) {
  ASSERT_TRUE(sets.add(kSet));
  ASSERT_EQ(sets.begin_sleep(entries), 1u);
  EXPECT_FALSE(sets.listen());
}

TEST_F(PolledSetsTest, ThatTheApplicationHasClosedAreForgotten) {
  ASSERT_TRUE(sets.add(kSet));
  ASSERT_TRUE(sets.add(kOther));
  sleep(/*ready=*/0, POLLNVAL);
  sets.listen();
  ASSERT_EQ(sleep(), 1u);
  EXPECT_EQ(entries[0].fd, kOther);
}

TEST_F(PolledSetsTest, AreRemovedOnce) {
  ASSERT_TRUE(sets.add(kSet));
  EXPECT_TRUE(sets.remove(kSet));
  EXPECT_FALSE(sets.remove(kSet));
  EXPECT_EQ(sleep(), 0u);
}

TEST_F(PolledSetsTest, BeyondTheirNumberAreRefused) {
  for (size_t i = 0; i < PolledSets::kMax; ++i) ASSERT_TRUE(sets.add(static_cast<int>(i)));
  const auto added = sets.add(kSet);
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ENOMEM);
  EXPECT_EQ(sleep(), PolledSets::kMax);
}

}  // namespace
}  // namespace verbena::engine
