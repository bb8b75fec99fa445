// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/halt_polling.h"

#include <gtest/gtest.h>

namespace verbena::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kLimit = HaltPolling::kLimit;

// An engine thread in virtual time.
struct Asker {
  void packet_after(Duration gap) {
    now += gap;
    polling.served(now);
    polling.rests(now, true);
  }
  // Asks until it asks no more; returns how long.
  Duration asks_in_vain() {
    const TimePoint began = now;
    while (polling.asks()) {
      now += microseconds(1);
      polling.rests(now, false);
    }
    return now - began;
  }
  // At every look for a while.
  void processors_are_wanted() {
    for (const TimePoint end = now + HaltPolling::kWhile; now < end;) {
      polling.gives_way(now, {});
      packet_after(kLimit);
    }
    polling.gives_way(now, {});
    EXPECT_FALSE(polling.asks());
  }
  void grows_to_the_limit() {
    for (int i = 0; i < 5; ++i) packet_after(kLimit);
  }

  HaltPolling polling;
  TimePoint now{std::chrono::hours(1)};
};

class HaltPollingTest : public testing::Test, protected Asker {};

TEST_F(HaltPollingTest, SleepsAfterTheFirstPacket) {
  packet_after({});
  EXPECT_FALSE(polling.asks());
}

TEST_F(HaltPollingTest, AsksLongerWhilePacketsFollowEachOther) {
  packet_after({});
  for (const int window : {10, 20, 40, 50, 50}) {
    packet_after(kLimit);
    Asker copy = *this;
    EXPECT_EQ(copy.asks_in_vain(), microseconds(window));
  }
}

TEST_F(HaltPollingTest, StaysAtAWindowThatSuffices) {
  packet_after({});
  packet_after(microseconds(5));
  packet_after(microseconds(5));
  EXPECT_EQ(asks_in_vain(), microseconds(10));
}

TEST_F(HaltPollingTest, SleepsAtOnceAfterAPacketThatCameLate) {
  grows_to_the_limit();
  asks_in_vain();
  packet_after(kLimit + HaltPolling::kWaking);
  EXPECT_FALSE(polling.asks());
}

TEST_F(HaltPollingTest, CountsTheWakingOfAPacketThatWasSleptFor) {
  packet_after({});
  packet_after(kLimit + HaltPolling::kWaking);
  EXPECT_TRUE(polling.asks());
}

// The worst that a peer can do: as many packets as make it ask, and then none until it has given up.
TEST_F(HaltPollingTest, AsksInVainForASmallPartOfTheTimeAtMost) {
  const TimePoint began = now;
  Duration vain{};
  while (now - began < seconds(1)) {
    for (int i = 0; i < 6; ++i) packet_after(microseconds(1));
    vain += asks_in_vain();
    packet_after(kLimit + HaltPolling::kWaking + microseconds(1));
  }
  EXPECT_LE(vain, (now - began) / HaltPolling::kVainPart + HaltPolling::kMaxCredit);
  EXPECT_GE(vain, (now - began) / HaltPolling::kVainPart / 4) << "it gave up altogether";
}

TEST_F(HaltPollingTest, GivesWayForALongerTimeEachTime) {
  grows_to_the_limit();
  for (const int bar : {1, 2, 4, 8}) {
    processors_are_wanted();
    for (const TimePoint end = now + milliseconds(bar); now + kLimit < end;) {
      packet_after(kLimit);
      ASSERT_FALSE(polling.asks());
    }
    packet_after(kLimit);
    EXPECT_TRUE(polling.asks());
  }
}

TEST_F(HaltPollingTest, GivesWayForAShortTimeAgainAfterPeace) {
  grows_to_the_limit();
  for (int i = 0; i < 4; ++i) processors_are_wanted();
  for (const TimePoint end = now + seconds(1); now < end;) packet_after(kLimit);
  processors_are_wanted();
  for (const TimePoint end = now + milliseconds(1); now < end;) packet_after(kLimit);
  EXPECT_TRUE(polling.asks());
}

// As an engine thread that looks whether its application still polls.
TEST_F(HaltPollingTest, GivesWayForOnePacketToOneWhoIsGoneAtOnce) {
  grows_to_the_limit();
  for (int i = 0; i < 100; ++i) {
    polling.gives_way(now, {});
    polling.gives_way(now + microseconds(10), {});  // still there
    EXPECT_FALSE(polling.asks());
    for (const TimePoint end = now + milliseconds(1); now < end;) {
      packet_after(kLimit);
      ASSERT_TRUE(polling.asks());
    }
  }
}

// As where each packet wakes a thread that soon sleeps again.
TEST_F(HaltPollingTest, AsksOnBesideThreadsThatComeAndGo) {
  grows_to_the_limit();
  for (int i = 0; i < 1000; ++i) {
    polling.gives_way(now, {});
    packet_after(kLimit);
    ASSERT_TRUE(polling.asks());
    if (i % 4 == 3) polling.has_room();
  }
}

TEST_F(HaltPollingTest, WithoutABarGivesWayForAsLongAsTheyAreWanted) {
  polling = HaltPolling(Duration::zero());
  packet_after({});
  grows_to_the_limit();
  for (int i = 0; i < 5; ++i) processors_are_wanted();
  packet_after(kLimit);
  EXPECT_TRUE(polling.asks());
  polling.gives_way(now, milliseconds(1));
  packet_after(kLimit);
  EXPECT_FALSE(polling.asks()) << "it has lost its processor";
  for (const TimePoint end = now + milliseconds(8); now < end;) packet_after(kLimit);
  EXPECT_TRUE(polling.asks());
}

TEST_F(HaltPollingTest, GoesByWhatWasNoticedMeanwhile) {
  grows_to_the_limit();
  polling.asked_on(now, {});
  EXPECT_TRUE(polling.asks()) << "nobody looked";
  polling.asked_on(now, {.looked = true});
  EXPECT_TRUE(polling.asks());
  polling.asked_on(now, {.looked = true, .wanted = true});
  EXPECT_FALSE(polling.asks());
}

TEST_F(HaltPollingTest, SleepsAtOnceWhereOthersServe) {
  grows_to_the_limit();
  polling.served_by_others();
  polling.rests(now, true);
  EXPECT_FALSE(polling.asks());
  packet_after(kLimit);
  EXPECT_TRUE(polling.asks());
}

// What it asked before it gave way was in vain, too.
TEST_F(HaltPollingTest, GivingWayIsNoWayToAskInVainForLonger) {
  polling = HaltPolling(Duration::zero());
  packet_after({});
  grows_to_the_limit();
  const TimePoint began = now;
  Duration vain{};
  while (now - began < seconds(1)) {
    if (polling.asks()) {
      now += microseconds(40);
      vain += microseconds(40);
      polling.gives_way(now, {});
    }
    packet_after(microseconds(20));
  }
  EXPECT_LE(vain, (now - began) / HaltPolling::kVainPart + HaltPolling::kMaxCredit);
}

// As one that was stopped for hours.
TEST_F(HaltPollingTest, AsksAgainSoonAfterItHasRunAtAll) {
  grows_to_the_limit();
  now += std::chrono::hours(2);
  polling.gives_way(now, std::chrono::hours(2));
  for (const TimePoint end = now + HaltPolling::kMaxBarByLost; now < end;) packet_after(kLimit);
  packet_after(kLimit);
  EXPECT_TRUE(polling.asks());
}

// As in a group whose share of processors is used up.
TEST_F(HaltPollingTest, GivesWayTheLongerTheLongerItHadNoProcessor) {
  grows_to_the_limit();
  polling.gives_way(now, milliseconds(50));
  for (const TimePoint end = now + milliseconds(390); now < end;) {
    packet_after(kLimit);
    ASSERT_FALSE(polling.asks());
  }
}

}  // namespace
}  // namespace verbena::engine
