// SPDX-License-Identifier: Apache-2.0
// The thread that drives the shard rings its alarms in time.
#include "adapter/engine/support/shard_test.h"

namespace verbena::engine {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class ShardAlarm : public ShardTest {
 protected:
  struct Noted : Alarm {
    void on_alarm() override { rung_at = now(); }
    TimePoint rung_at = kNever;
  };
  ~ShardAlarm() override {
    shard->exclusively([&] { shard->cancel_alarm(alarm); });
  }
  void set(Duration after) {
    set_at = now();
    shard->exclusively([&] { shard->set_alarm(alarm, after); });
  }

  Noted alarm;
  TimePoint set_at;
};

TEST_F(ShardAlarm, WakesTheEngineThatWouldSleepLonger) {
  engine_starts();
  set(milliseconds(20));
  EXPECT_THAT(sleeper.said(), ElementsAre("wake"));
  const Shard::EngineView view = shard->run_engine();
  EXPECT_GE(view.wake_at, set_at + milliseconds(20));
  EXPECT_LE(view.wake_at, now() + milliseconds(20));
  sleeper.said();
  set(milliseconds(30));
  EXPECT_THAT(sleeper.said(), IsEmpty()) << "it comes in time";
}

TEST_F(ShardAlarm, IsRungByTheEngine) {
  engine_starts();
  set(milliseconds(2));
  const TimePoint patience = set_at + seconds(10);
  while (alarm.rung_at == kNever && now() < patience) {
    const Shard::EngineView view = shard->run_engine();
    if (alarm.rung_at == kNever) passes(view.wake_at - now());
  }
  EXPECT_NE(alarm.rung_at, kNever);
  EXPECT_GE(alarm.rung_at, set_at + milliseconds(2));
}

TEST_F(ShardAlarm, IsRungByAPollingApplicationAndWakesNobody) {
  engine_starts();
  application_takes_over();
  set(milliseconds(2));
  const TimePoint patience = set_at + seconds(10);
  for (; alarm.rung_at == kNever && now() < patience; passes(20 * kBetweenPolls)) shard->poll();
  EXPECT_NE(alarm.rung_at, kNever);
  EXPECT_GE(alarm.rung_at, set_at + milliseconds(2));
  EXPECT_THAT(sleeper.said(), IsEmpty());
}

TEST_F(ShardAlarm, IsSetAnewWhenItIsSetAlready) {
  engine_starts();
  set(Duration::zero());
  set(hours(1));
  shard->run_engine();
  EXPECT_EQ(alarm.rung_at, kNever);
}

TEST_F(ShardAlarm, IsForgottenWhenCancelled) {
  engine_starts();
  set(Duration::zero());
  shard->exclusively([&] { shard->cancel_alarm(alarm); });
  EXPECT_EQ(shard->run_engine().wake_at, kNever);
  EXPECT_EQ(alarm.rung_at, kNever);
}

}  // namespace
}  // namespace verbena::engine
