// SPDX-License-Identifier: Apache-2.0
#include "agent/user_timers.h"

#include <chrono>
#include <new>
#include <string>

#include <gtest/gtest.h>

namespace verbena::agent {
namespace {

using std::chrono::seconds;

// Not the user who runs the tests.
constexpr uid_t kUser = 1'000'000;
constexpr uid_t kOther = 1'000'001;

class UserTimersTest : public ::testing::Test {
 protected:
  // A timer that records `name`.
  UserTimers::Id at(TimePoint when, char name, uid_t user = kUser) {
    return timers_.at(user, when, [this, name] { order_ += name; });
  }
  void pass(Duration time) {
    now_ += time;
    timers_.queue_due(now_);
    turns_.run(std::chrono::hours(1));
  }

  TimePoint now_ = TimePoint(std::chrono::hours(1));
  std::string order_;
  UserTurns turns_{[this] { return now_; }, [this] { return now_; }};
  UserTimers timers_{turns_, [this] { return now_; }};
};

TEST_F(UserTimersTest, RunInTheirOrder) {
  at(now_ + seconds(2), 'b');
  at(now_ + seconds(1), 'a');
  at(now_ + seconds(3), 'd', kOther);
  at(now_ + seconds(2), 'c');
  EXPECT_EQ(timers_.next(), now_ + seconds(1));
  pass(seconds(1));
  EXPECT_EQ(order_, "a");
  EXPECT_EQ(timers_.next(), now_ + seconds(1));
  pass(seconds(1));
  EXPECT_EQ(order_, "abc");
  pass(seconds(1));
  EXPECT_EQ(order_, "abcd");
  EXPECT_EQ(timers_.next(), kNever);
}

TEST_F(UserTimersTest, RunInTurnsOfTheirUser) {
  at(now_, 'a');
  timers_.queue_due(now_);
  EXPECT_EQ(order_, "");
  EXPECT_TRUE(turns_.has(kUser));
  EXPECT_EQ(timers_.next(), kNever) << "until the turn";
  pass({});
  EXPECT_EQ(order_, "a");
}

TEST_F(UserTimersTest, ManyOfOneUserAreOnePieceAtATime) {
  for (int i = 0; i < 1000; ++i) {
    timers_.at(kUser, now_, [this] {
      order_ += 'a';
      now_ += UserTurns::kQuantum;
    });
  }
  timers_.queue_due(now_);
  turns_.run({});
  turns_.run({});
  EXPECT_EQ(order_, "aa");
  at(now_, 'b', kOther);
  timers_.queue_due(now_);
  turns_.run({});
  EXPECT_EQ(order_, "aab");
}

TEST_F(UserTimersTest, ACancelledOneDoesNotRun) {
  const auto first = at(now_, 'a');
  const auto second = at(now_, 'b');
  timers_.cancel(first);
  timers_.queue_due(now_);
  timers_.cancel(second);
  timers_.cancel({});
  pass(seconds(1));
  EXPECT_EQ(order_, "");
  EXPECT_EQ(timers_.next(), kNever);
}

TEST_F(UserTimersTest, ATaskMaySetAndCancelTimers) {
  UserTimers::Id other;
  timers_.at(kUser, now_, [&] {
    timers_.cancel(other);
    at(now_ + seconds(1), 'a');
    at(now_, 'b');
  });
  other = at(now_ + seconds(2), 'c');
  pass({});
  EXPECT_EQ(order_, "b");
  pass(seconds(1));
  EXPECT_EQ(order_, "ba");
  pass(seconds(9));
  EXPECT_EQ(order_, "ba");
}

TEST_F(UserTimersTest, OneForThePastGoesBehindThoseThatAreDue) {
  at(now_, 'a');
  at(now_ + seconds(1), 'c');
  timers_.at(kUser, now_, [this] { at(TimePoint{}, 'd'); });
  at(now_ + seconds(1), 'b');
  now_ += seconds(1);
  pass({});
  EXPECT_EQ(order_, "acbd");
}

TEST_F(UserTimersTest, AnEarlierOneMovesTheTurn) {
  at(now_ + seconds(5), 'b');
  at(now_ + seconds(1), 'a');
  pass(seconds(1));
  EXPECT_EQ(order_, "a");
  const auto cancelled = at(now_ + seconds(1), 'c');
  timers_.cancel(cancelled);
  pass(seconds(4));
  EXPECT_EQ(order_, "ab");
}

TEST_F(UserTimersTest, OneForWhichThereIsNoMemoryEndsAlone) {
  timers_.at(kUser, now_, [] { throw std::bad_alloc(); });
  at(now_, 'a');
  at(now_ + seconds(1), 'b');
  pass({});
  pass(seconds(1));
  EXPECT_EQ(order_, "ab");
}

}  // namespace
}  // namespace verbena::agent
