// SPDX-License-Identifier: Apache-2.0
// How the agent's time is divided among users. Only work advances the clock.
#include "agent/user_turns.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <string>

#include <gtest/gtest.h>

namespace verbena::agent {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Not the user who runs the tests.
constexpr uid_t kBusy = 1'000'000;
constexpr uid_t kOther = 1'000'001;
constexpr uid_t kThird = 1'000'002;
constexpr Duration kLong = std::chrono::hours(1);
// A piece that overdraws the budget as much as the budget is.
constexpr Duration kTooLong = UserTurns::kSlow + 2 * SlowUsers::kBudget;

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
  // Like piece(), for work that needs the processor all the time.
  UserTurns::Piece slow_piece(char name, Duration takes, int times = 1) {
    return [this, takes, work = piece(name, takes, times)] {
      used_ += takes;
      return work();
    };
  }
  // Makes `most` calls that take this long, as messages. Returns the number of calls that were made.
  int call(Duration takes, int most) {
    int made = 0;
    const auto take_time = [&] {
      now_ += takes;
      used_ += takes;
    };
    for (int i = 0; i < most; ++i) made += turns_.try_for(kBusy, take_time, UserTurns::kSlowMessage);
    return made;
  }
  void run(Duration most = kLong) { turns_.run(most); }
  int count(char name) const { return static_cast<int>(std::ranges::count(order_, name)); }

  TimePoint now_{};
  TimePoint used_{};  // processor time
  std::string order_;
  UserTurns turns_{[this] { return now_; }, [this] { return used_; }};
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

TEST_F(UserTurnsTest, SlowPiecesTakeAHundredthOfTheTime) {
  turns_.add(kBusy, slow_piece('a', milliseconds(50), 1000));
  turns_.add(kOther, slow_piece('b', milliseconds(1), 1'000'000));
  while (now_ < TimePoint(std::chrono::minutes(1))) run(milliseconds(1));
  EXPECT_GE(count('a'), 10);
  EXPECT_LE(count('a'), 18);
  EXPECT_GE(count('b'), 59'000);
}

TEST_F(UserTurnsTest, APieceThatWaitsForAProcessorIsNotSlow) {
  turns_.add(kBusy, piece('a', milliseconds(50), 100));
  run();
  EXPECT_EQ(count('a'), 100);
}

// Otherwise a user could hide slow pieces on one session by quick ones on another.
TEST_F(UserTurnsTest, QuickPiecesInBetweenHideNoSlowOnes) {
  for (int i = 0; i < 1000; ++i) {
    turns_.add(kBusy, slow_piece('a', milliseconds(50)));
    for (int quick = 0; quick < 5; ++quick) turns_.add(kBusy, slow_piece('q', microseconds(20)));
    run(Duration::zero());
    for (int round = 0; round < 10; ++round) run(Duration::zero());
    now_ += milliseconds(50);
  }
  EXPECT_LE(count('a'), 16) << "of 1,000 in 50 seconds";
}

TEST_F(UserTurnsTest, PiecesOfAUserWhoPausesWaitForTheEnd) {
  turns_.add(kBusy, slow_piece('a', kTooLong, 2));
  turns_.add(kBusy, slow_piece('b', milliseconds(1)));
  run();
  EXPECT_EQ(order_, "aba");
  EXPECT_TRUE(turns_.is_paused(kBusy));
  EXPECT_EQ(turns_.pause_end(), kNever) << "nothing waits";
  const TimePoint end = now_ + SlowUsers::kPause * SlowUsers::kBudget;
  for (const char name : {'c', 'd'}) turns_.add(kBusy, slow_piece(name, milliseconds(1)));
  EXPECT_EQ(turns_.pause_end(), end);
  EXPECT_TRUE(turns_.empty());
  EXPECT_TRUE(turns_.has(kBusy));
  now_ = end - milliseconds(1);
  run();
  EXPECT_EQ(order_, "aba");
  now_ = end;
  run();
  EXPECT_EQ(order_, "abacd");
  EXPECT_FALSE(turns_.is_paused(kBusy));
  EXPECT_FALSE(turns_.has(kBusy));
}

TEST_F(UserTurnsTest, ACallForAnotherUserCountsAsThatUsers) {
  bool was_made = true;
  const auto call_busy = [&] {
    was_made = turns_.try_for(kBusy, [this] {
      now_ += milliseconds(50);
      used_ += milliseconds(50);
    });
  };
  for (int i = 0; i < 4; ++i) {
    turns_.add(kOther, [&] {
      call_busy();
      return false;
    });
    run();
    EXPECT_EQ(was_made, i < 2);
  }
  EXPECT_TRUE(turns_.is_paused(kBusy));
  EXPECT_FALSE(turns_.is_paused(kOther));
  EXPECT_FALSE(turns_.is_suspect(kOther));
  now_ += std::chrono::minutes(1);
  run();
  call_busy();
  EXPECT_TRUE(was_made);
}

TEST_F(UserTurnsTest, ACallInTheUsersOwnPieceMayBeginThePause) {
  int runs = 0;
  const auto make_call = [this] {
    turns_.try_for(kBusy, [this] {
      now_ += milliseconds(50);
      used_ += milliseconds(50);
    });
  };
  turns_.add(kBusy, [&] {
    make_call();
    return ++runs < 10;
  });
  turns_.add(kBusy, slow_piece('b', milliseconds(1)));
  run();
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(order_, "b");
  EXPECT_TRUE(turns_.empty());
  now_ = turns_.pause_end();
  run();
  EXPECT_EQ(runs, 3);
}

TEST_F(UserTurnsTest, TimeThatOthersCauseBeginsNoPause) {
  const auto read = [this] {
    turns_.without_blame([this] {
      now_ += milliseconds(50);
      used_ += milliseconds(50);
    });
  };
  for (int i = 0; i < 5; ++i) {
    turns_.add(kBusy, [&] {
      read();
      return false;
    });
    run();
    EXPECT_TRUE(turns_.try_for(kBusy, read));
  }
  EXPECT_FALSE(turns_.is_suspect(kBusy));
  for (int i = 0; i < 2; ++i) {
    turns_.add(kBusy, [&] {
      read();
      now_ += kTooLong;
      used_ += kTooLong;
      return false;
    });
    run();
  }
  EXPECT_TRUE(turns_.is_paused(kBusy)) << "the rest of its work counts";
}

// As if another user had made the kernel slow for all.
TEST_F(UserTurnsTest, WhatTheKernelAloneTookBringsTheEndOfEachPauseForward) {
  EXPECT_EQ(call(milliseconds(50), 10), 2);
  turns_.add(kBusy, piece('a', microseconds(1)));
  const TimePoint end = turns_.pause_end();
  turns_.pardon(milliseconds(10));
  EXPECT_EQ(turns_.pause_end(), end - SlowUsers::kPause * milliseconds(10));
  turns_.pardon(milliseconds(50));
  run();
  EXPECT_EQ(count('a'), 1);
}

TEST_F(UserTurnsTest, APardonIsNoCreditForLater) {
  EXPECT_EQ(call(milliseconds(50), 10), 2);
  turns_.pardon(std::chrono::hours(1));
  EXPECT_EQ(call(milliseconds(50), 10), 1);
}

// The first one is measured by any clock, so it makes the user suspect only.
TEST_F(UserTurnsTest, ManyCallsCountLikeALongOne) {
  EXPECT_EQ(call(microseconds(9900), 256), 3);
  EXPECT_TRUE(turns_.is_paused(kBusy));
}

TEST_F(UserTurnsTest, ManyCallsInOnePieceCountLikeALongOne) {
  for (const uid_t user : {kBusy, kOther}) {
    int made = 0;
    turns_.add(user, [&] {
      made = call(microseconds(9900), 256);
      return false;
    });
    run();
    EXPECT_EQ(made, 3);
    EXPECT_TRUE(turns_.is_paused(kBusy));
    EXPECT_FALSE(turns_.is_suspect(kOther));
    now_ += std::chrono::hours(1);
    run();
  }
}

TEST_F(UserTurnsTest, ShortCallsAreLimitedLikeThePieceThatMakesThem) {
  EXPECT_EQ(call(microseconds(40), 10'000), 10'000);
  EXPECT_FALSE(turns_.is_suspect(kBusy));
  for (int i = 0; i < 2; ++i) {
    turns_.add(kBusy, [this] {
      call(microseconds(40), 10'000);
      return false;
    });
    run();
  }
  EXPECT_TRUE(turns_.is_paused(kBusy));
}

TEST_F(UserTurnsTest, TheBudgetFillsByAHundredthOfTheTime) {
  int made = 0;
  while (now_ < TimePoint(std::chrono::minutes(1))) {
    made += call(milliseconds(5), 10);
    now_ += milliseconds(10);
  }
  EXPECT_GE(made * milliseconds(5), milliseconds(550));
  EXPECT_LE(made * milliseconds(5), milliseconds(650));
}

// For example messages that timers or packets cause.
TEST_F(UserTurnsTest, CallsOutsideOfTurnsAreTakenOffTheNextTurns) {
  turns_.add(kOther, piece('b', microseconds(100), 1000));
  EXPECT_EQ(call(microseconds(40), 100), 100);
  turns_.add(kBusy, piece('a', microseconds(100)));
  run(milliseconds(3));
  EXPECT_EQ(count('a'), 0);
  run(milliseconds(3));
  EXPECT_EQ(count('a'), 1);
}

TEST_F(UserTurnsTest, ACallThatMustBeMadeIsMadeDuringAPause) {
  call(milliseconds(50), 2);
  EXPECT_EQ(call(milliseconds(50), 1), 0);
  bool is_made = false;
  turns_.call_for(
      kBusy, [&] { is_made = true; }, UserTurns::kSlowMessage);
  EXPECT_TRUE(is_made);
}

TEST_F(UserTurnsTest, RootDoesNotPause) {
  turns_.add(0, slow_piece('a', milliseconds(50), 100));
  run();
  EXPECT_EQ(count('a'), 100);
}

}  // namespace
}  // namespace verbena::agent
