// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/timer_wheel.h"

#include <array>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace verbena::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kStep{65536};

struct Alarm {
  ListHook timer_hook;
  TimePoint timer_armed_for = kNever;
  TimePoint due = kNever;
  int asked = 0;
};

class TimerWheelTest : public testing::Test {
 protected:
  void arm(Alarm& which, Duration in) { wheel.arm(which, now + in); }
  // How often any alarm is asked while time passes.
  int pass(Duration time) {
    int asked = 0;
    wheel.advance(now += time, [&](Alarm& due) {
      ++due.asked;
      ++asked;
    });
    return asked;
  }

  TimePoint now{seconds(1000)};
  TimerWheel<Alarm> wheel{now};
  Alarm alarm;
  Alarm other;
};

TEST_F(TimerWheelTest, AsksOnceAndNotBeforeTheDeadline) {
  arm(alarm, milliseconds(5));
  EXPECT_EQ(pass(milliseconds(5)), 0);
  EXPECT_EQ(pass(kStep), 1);
  EXPECT_EQ(pass(seconds(1)), 0);
  EXPECT_EQ(alarm.timer_armed_for, kNever);
}

TEST_F(TimerWheelTest, KeepsAnEarlierAppointment) {
  arm(alarm, milliseconds(5));
  arm(alarm, milliseconds(50));
  EXPECT_EQ(pass(milliseconds(6)), 1);
  EXPECT_EQ(pass(milliseconds(60)), 0);
}

TEST_F(TimerWheelTest, MovesToAnEarlierDeadline) {
  arm(alarm, milliseconds(50));
  arm(alarm, milliseconds(5));
  EXPECT_EQ(pass(milliseconds(6)), 1);
  EXPECT_EQ(pass(milliseconds(60)), 0);
}

TEST_F(TimerWheelTest, DoesNotAskWhatIsCancelled) {
  arm(alarm, milliseconds(5));
  arm(other, milliseconds(5));
  wheel.cancel(alarm);
  EXPECT_EQ(pass(milliseconds(6)), 1);
  EXPECT_EQ(alarm.asked, 0);
  EXPECT_EQ(other.asked, 1);
}

TEST_F(TimerWheelTest, CancelledAppointmentCostsOneLookAtMost) {
  arm(alarm, milliseconds(5));
  wheel.cancel(alarm);
  const TimePoint look = wheel.next();  // too early is allowed, too late would not be
  ASSERT_LE(look, now + milliseconds(6));
  EXPECT_EQ(pass(look - now), 0);
  EXPECT_EQ(wheel.next(), kNever);
}

TEST_F(TimerWheelTest, CancelOfWhatIsNotArmedDoesNothing) {
  wheel.cancel(alarm);
  EXPECT_EQ(wheel.next(), kNever);
}

TEST_F(TimerWheelTest, DeadlineInThePastIsAskedAtTheNextStep) {
  arm(alarm, -seconds(1));
  EXPECT_LE(wheel.next(), now + kStep);
  EXPECT_EQ(pass(kStep), 1);
}

TEST_F(TimerWheelTest, WhatLiesBeyondATurnIsAskedEachTurn) {
  const TimePoint due = now + milliseconds(500);
  wheel.arm(alarm, due);
  int early = 0;
  bool in_time = false;
  while (!in_time) {
    const TimePoint next = wheel.next();
    ASSERT_NE(next, kNever);
    ASSERT_GT(next, now);
    wheel.advance(now = next, [&](Alarm& a) {
      if (now < due) {
        ++early;
        wheel.arm(a, due);
      } else {
        in_time = true;
      }
    });
  }
  EXPECT_LE(now, due + kStep);
  EXPECT_LE(early, 8);  // 67 ms a turn
}

TEST_F(TimerWheelTest, AnObjectThatIsAskedMayArmAgainAndCancelOthers) {
  arm(alarm, milliseconds(5));
  arm(other, milliseconds(5));
  int asked = 0;
  wheel.advance(now += milliseconds(6), [&](Alarm& a) {
    ++asked;
    Alarm& another = &a == &alarm ? other : alarm;
    wheel.cancel(another);  // due in this very step
    wheel.arm(a, now + milliseconds(1));
  });
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(pass(milliseconds(2)), 1);
}

TEST_F(TimerWheelTest, AnswerThatArmsForNowDoesNotHoldUpTheCaller) {
  arm(alarm, milliseconds(1));
  int asked = 0;
  wheel.advance(now += milliseconds(2), [&](Alarm& a) {
    ++asked;
    wheel.arm(a, now);
  });
  EXPECT_LE(asked, 2);
  EXPECT_EQ(pass(2 * kStep), 1);
}

TEST_F(TimerWheelTest, SleepOfManyTurnsLosesNothing) {
  std::array<Alarm, 64> alarms;
  for (size_t i = 0; i < alarms.size(); ++i) arm(alarms[i], milliseconds(1) * static_cast<int>(i));
  EXPECT_EQ(pass(seconds(3600)), 64);
}

TEST_F(TimerWheelTest, TimeThatDoesNotPassAsksNobody) {
  arm(alarm, microseconds(0));
  EXPECT_EQ(pass(Duration::zero()), 0);
  EXPECT_EQ(pass(-seconds(1)), 0);
}

// Against a plain map of deadlines. An object that is asked early arms again, as in the shard.
RC_GTEST_PROP(TimerWheelProperty, AsksAsASortedListWould, ()) {
  constexpr size_t kAlarms = 12;
  TimePoint now{seconds(*rc::gen::inRange<int64_t>(0, 100000))};
  TimerWheel<Alarm> wheel(now);
  std::array<Alarm, kAlarms> alarms;
  std::map<size_t, TimePoint> model;  // by alarm: when it is due

  const auto advance = [&](TimePoint to) {
    now = to;
    std::set<size_t> asked;
    wheel.advance(now, [&](Alarm& alarm) {
      const auto index = static_cast<size_t>(&alarm - alarms.data());
      RC_ASSERT(model.contains(index));
      if (now < model[index]) {
        wheel.arm(alarm, model[index]);
        return;
      }
      RC_ASSERT(asked.insert(index).second);
    });
    for (const size_t index : asked) model.erase(index);
    // None is left that was due a whole step ago.
    for (const auto& [index, due] : model) RC_ASSERT(due + kStep > now);
  };

  const auto steps = *rc::gen::inRange(1, 200);
  for (int step = 0; step < steps; ++step) {
    const auto index = *rc::gen::inRange<size_t>(0, kAlarms);
    switch (*rc::gen::inRange(0, 4)) {
      case 0: {  // near and beyond the rim
        const auto in = Duration(*rc::gen::oneOf(rc::gen::inRange<int64_t>(0, 3 * kStep.count()),
                                                 rc::gen::inRange<int64_t>(0, 200'000'000)));
        wheel.arm(alarms[index], now + in);
        const auto known = model.find(index);
        if (known == model.end() || now + in < known->second) model[index] = now + in;
        break;
      }
      case 1:
        wheel.cancel(alarms[index]);
        model.erase(index);
        break;
      case 2:
        advance(now + Duration(*rc::gen::inRange<int64_t>(0, 100'000'000)));
        break;
      default:
        if (wheel.next() != kNever) advance(std::max(now, wheel.next()));
    }
    // A thread that sleeps until next() is late for nobody.
    for (const auto& [armed, due] : model) {
      RC_ASSERT(wheel.next() <= std::max(due, now) + 2 * kStep);
    }
  }
}

}  // namespace
}  // namespace verbena::engine
