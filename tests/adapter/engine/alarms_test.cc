// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/alarms.h"

#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace verbena::engine {
namespace {

using testing::ElementsAre;

TimePoint at(int64_t ns) {
  return TimePoint(Duration(ns));
}

class AlarmsTest : public testing::Test {
 protected:
  struct Noted : Alarm {
    void on_alarm() override {
      log->push_back(name);
      if (then) then();
    }
    int name = 0;
    std::vector<int>* log = nullptr;
    std::function<void()> then;
  };

  AlarmsTest() {
    for (int i = 0; i < 4; ++i) {
      noted[i].name = i;
      noted[i].log = &rung;
    }
  }

  std::vector<int> rung;
  Noted noted[4];
  Alarms alarms;
};

TEST_F(AlarmsTest, RingInTheOrderOfTheirMoments) {
  EXPECT_EQ(alarms.next(), kNever);
  alarms.set(noted[0], at(30));
  alarms.set(noted[1], at(10));
  alarms.set(noted[2], at(20));
  alarms.set(noted[3], at(10));
  EXPECT_EQ(alarms.next(), at(10));
  alarms.ring_due(at(9));
  EXPECT_THAT(rung, ElementsAre());
  alarms.ring_due(at(20));
  EXPECT_THAT(rung, ElementsAre(1, 3, 2)) << "of two at one moment, the one that was set first";
  EXPECT_EQ(alarms.next(), at(30));
  alarms.ring_due(at(1000));
  EXPECT_THAT(rung, ElementsAre(1, 3, 2, 0));
  EXPECT_EQ(alarms.next(), kNever);
}

TEST_F(AlarmsTest, ThatAreCancelledDoNotRing) {
  alarms.set(noted[0], at(10));
  alarms.set(noted[1], at(20));
  alarms.cancel(noted[0]);
  alarms.cancel(noted[2]);  // never set
  EXPECT_EQ(alarms.next(), at(20));
  alarms.ring_due(at(20));
  EXPECT_THAT(rung, ElementsAre(1));
}

TEST_F(AlarmsTest, MaySetAndCancelOthersWhileTheyRing) {
  noted[0].then = [&] {
    alarms.cancel(noted[1]);
    alarms.set(noted[0], at(40));
  };
  alarms.set(noted[0], at(10));
  alarms.set(noted[1], at(10));
  alarms.set(noted[2], at(20));
  alarms.ring_due(at(30));
  EXPECT_THAT(rung, ElementsAre(0, 2));
  EXPECT_EQ(alarms.next(), at(40));
}

}  // namespace
}  // namespace verbena::engine
