// SPDX-License-Identifier: Apache-2.0
// How the agent's time is divided among users. Only work advances the clock.
#include <algorithm>
#include <chrono>
#include <new>
#include <string>

#include <gtest/gtest.h>

#include "agent/event_loop.h"

namespace verbena::agent {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uid_t kBusy = 1000;
constexpr uid_t kOther = 1001;
constexpr uid_t kThird = 1002;
constexpr Duration kLong = std::chrono::hours(1);

class UserTurnsTest : public ::testing::Test {
 protected:
  // A piece of work that takes this long and records `name`, `times` times.
  UserTurns::Piece piece(char name, Duration takes, int times = 1) {
    return [this, name, takes, times]() mutable {
      order_ += name;
      now_ += takes;
      return --times > 0;
    };
  }
  void run(Duration most = kLong) {
    turns_.run(most, [this] { return now_; });
  }
  int count(char name) const { return static_cast<int>(std::ranges::count(order_, name)); }

  UserTurns turns_;
  TimePoint now_{};
  std::string order_;
};

TEST_F(UserTurnsTest, PiecesOfOneUserRunInTheirOrder) {
  turns_.add(kBusy, piece('a', microseconds(1), 2));
  turns_.add(kBusy, piece('b', microseconds(1)));
  run();
  EXPECT_EQ(order_, "aba") << "the rest of one goes behind the others";
  EXPECT_TRUE(turns_.empty());
}

TEST_F(UserTurnsTest, APieceForWhichThereIsNoMemoryEndsAlone) {
  turns_.add(kBusy, []() -> bool { throw std::bad_alloc(); });
  turns_.add(kBusy, piece('a', microseconds(1)));
  turns_.add(kOther, piece('b', microseconds(1)));
  run();
  EXPECT_EQ(order_, "ab");
  EXPECT_TRUE(turns_.empty());
}

TEST_F(UserTurnsTest, ManyPiecesEarnNoMoreTimeThanOne) {
  for (int i = 0; i < 1000; ++i) turns_.add(kBusy, piece('a', milliseconds(1)));
  turns_.add(kOther, piece('b', milliseconds(1), 1000));
  run(milliseconds(200));
  EXPECT_NEAR(count('a'), 100, 2);
  EXPECT_NEAR(count('b'), 100, 2);
}

TEST_F(UserTurnsTest, WhatAPieceTakesCountsAndNotTheirNumber) {
  turns_.add(kBusy, piece('a', milliseconds(10), 1000));
  turns_.add(kOther, piece('b', microseconds(100), 10000));
  run(milliseconds(400));
  EXPECT_NEAR(count('a'), 20, 2);
  EXPECT_NEAR(count('b'), 2000, 200);
}

TEST_F(UserTurnsTest, WhoHadNothingToDoWaitsForOnePieceOnly) {
  for (const uid_t user : {kBusy, kThird}) turns_.add(user, piece('a', milliseconds(2), 1000));
  run(milliseconds(40));
  for (int i = 0; i < 10; ++i) {
    turns_.add(kOther, piece('b', microseconds(50)));
    order_.clear();
    run(milliseconds(4));
    EXPECT_EQ(order_.find('b'), 0u) << order_;
  }
}

// The user's piece is always done before the next request, so it never waits in the queue.
TEST_F(UserTurnsTest, OneExpensiveQuestionAtATimeEarnsNoMore) {
  turns_.add(kOther, piece('b', microseconds(100), 100'000));
  for (int i = 0; i < 2000; ++i) {
    if (!turns_.has(kBusy)) turns_.add(kBusy, piece('a', milliseconds(10)));
    run(Duration::zero());
  }
  const auto busy = count('a') * milliseconds(10);
  const auto other = count('b') * microseconds(100);
  EXPECT_LE(busy, other + 2 * milliseconds(10));
}

TEST_F(UserTurnsTest, NobodyOwesAnythingWhenNobodyHasWaited) {
  turns_.add(kBusy, piece('a', std::chrono::seconds(10)));
  run();
  turns_.add(kBusy, piece('a', milliseconds(1), 100));
  turns_.add(kOther, piece('b', milliseconds(1), 100));
  run(milliseconds(20));
  EXPECT_NEAR(count('a'), 11, 2);
}

TEST_F(UserTurnsTest, OnePieceRunsHoweverLittleTimeThereIs) {
  turns_.add(kBusy, piece('a', milliseconds(1), 3));
  run(Duration::zero());
  EXPECT_EQ(order_, "a");
  EXPECT_TRUE(turns_.has(kBusy));
  EXPECT_FALSE(turns_.has(kOther));
}

TEST_F(UserTurnsTest, APieceMayAddOthers) {
  turns_.add(kBusy, [this] {
    turns_.add(kOther, piece('b', microseconds(1)));
    turns_.add(kBusy, piece('a', microseconds(1)));
    return false;
  });
  run();
  EXPECT_EQ(order_.size(), 2u);
}

}  // namespace
}  // namespace verbena::agent
