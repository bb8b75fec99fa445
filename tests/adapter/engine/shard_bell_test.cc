// SPDX-License-Identifier: Apache-2.0
// A thread that sleeps at a shard's bell until it has an event, the engine thread beside it, and who of them
// hears the bell.
#include <functional>

#include "adapter/engine/halt_polling.h"
#include "adapter/engine/support/queue_input.h"
#include "adapter/engine/support/shard_test.h"

namespace verbena::engine {
namespace {

using roce::Operation;
using testing::ElementsAre;
using testing::IsEmpty;
using AtBell = Shard::AtBell;

// An input that rings, as lanes of memory do: only while it is listened for.
class RingingInput : public QueueInput {
 public:
  using QueueInput::QueueInput;
  bool is_memory() const override { return true; }
  const Bell* bell() const override { return &bell_; }
  bool listen(bool on) override {
    is_listened_for = on;
    if (on && on_listening) std::exchange(on_listening, nullptr)();
    return on && waiting > 0;
  }
  uint32_t receive(uint32_t budget, TimePoint now) override {
    waiting = 0;
    const uint32_t received = QueueInput::receive(budget, now);
    return busy_rounds == 0 ? received : (--busy_rounds, received + 1);
  }
  void packet_comes() {
    packet_arrives();
    ++waiting;
    if (std::exchange(is_listened_for, false)) bell_.ring();
  }
  bool has_rung() const { return bell_.hear(); }

  std::function<void()> on_listening;  // called once
  bool is_listened_for = false;
  uint32_t waiting = 0;
  uint32_t busy_rounds = 0;  // in which there is something else, each time

 private:
  Bell bell_ = *Bell::make();
};

class ShardBell : public ShardTest {
 protected:
  ShardBell() {
    EXPECT_TRUE(shard->exclusively([&] { return shard->add_input(input); }));
    engine_starts();
    EXPECT_TRUE(engine_hears());
  }
  ~ShardBell() override {
    shard->exclusively([&] { shard->remove_input(input); });
  }

  bool engine_hears() const { return sleeper.hears_bell && input.is_listened_for; }
  bool thread_hears() const { return !sleeper.hears_bell && input.is_listened_for; }
  bool nobody_hears() const { return !input.is_listened_for; }

  // A packet comes, and with it the event that the thread waits for.
  void event_comes() {
    input.packet_comes();
    channel->post(source);
  }
  // The thread sleeps, is rung for an event, takes it and goes.
  void has_one_event() {
    ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
    event_comes();
    ASSERT_EQ(shard->looks_at_bell(*waiter), AtBell::kServed);
    waiter->take([](queues::EventSource&) {});
  }

  RingingInput input{*shard, *qp};
  queues::EventSource source;
  std::unique_ptr<queues::EventChannel> channel = *queues::EventChannel::create();
  std::optional<queues::EventChannel::Waiter> waiter{std::in_place, *channel, *input.bell()};
};

TEST_F(ShardBell, ThreadHearsItAndTheEngineHearsAllElse) {
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
  EXPECT_TRUE(thread_hears());
  EXPECT_THAT(sleeper.said(), IsEmpty()) << "the engine thread listened before";
  packet_arrives();
  shard->run_engine();
  EXPECT_EQ(qp->received, 1u);
  EXPECT_TRUE(thread_hears());
}

TEST_F(ShardBell, ThreadTakesWhatComesAndSleepsOnWhenItIsNotItsEvent) {
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
  input.packet_comes();
  EXPECT_TRUE(input.has_rung());
  ASSERT_EQ(shard->looks_at_bell(*waiter), AtBell::kSleeps);
  EXPECT_EQ(qp->received, 1u);
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge)) << "it may sleep for long";
  EXPECT_TRUE(thread_hears());
}

TEST_F(ShardBell, WhatIsThereAlreadyIsTakenBeforeTheThreadSleeps) {
  input.packet_comes();
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
  EXPECT_EQ(qp->received, 1u);
  EXPECT_TRUE(thread_hears());
}

// It lets others have the lock, and comes back when its own ring wakes it; the engine thread would take that
// for its own, and what rings behind it.
TEST_F(ShardBell, IsTheThreadsAlsoWhereThereIsMoreThanItTakesAtOnce) {
  input.busy_rounds = 1000;
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
  input.busy_rounds = 0;
  EXPECT_FALSE(sleeper.hears_bell);
  EXPECT_TRUE(input.has_rung());
  event_comes();
  EXPECT_EQ(shard->looks_at_bell(*waiter), AtBell::kServed);
}

// What rings later is for who sleeps there by then, and would not hear it beside the engine thread.
TEST_F(ShardBell, EngineKeepsItFromAThreadThatIsServedAtFirstSight) {
  channel->post(source);
  EXPECT_EQ(shard->goes_to_bell(*waiter), AtBell::kServed);
  EXPECT_TRUE(engine_hears());
  waiter->take([](queues::EventSource&) {});
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
  EXPECT_TRUE(thread_hears());
}

// Nobody rings for it: it is the thread itself that brings the event, when it has looked already.
TEST_F(ShardBell, ThreadDoesNotSleepOnAnEventThatItBringsOnItsWayOut) {
  input.on_listening = [&] { channel->post(source); };
  EXPECT_EQ(shard->goes_to_bell(*waiter), AtBell::kServed);
  waiter->take([](queues::EventSource&) {});
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
  input.on_listening = [&] { channel->post(source); };
  EXPECT_EQ(shard->looks_at_bell(*waiter), AtBell::kServed);
}

TEST_F(ShardBell, ThreadTakesListeningBackFromAnApplicationThatPolled) {
  application_takes_over();
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
  EXPECT_TRUE(thread_hears());
  EXPECT_THAT(sleeper.said(), ElementsAre("listen")) << "to the ports";
}

TEST_F(ShardBell, AcknowledgementWaitsForWhatTheThreadSaysNext) {
  has_one_event();
  EXPECT_THAT(sent(), IsEmpty());
  shard->expect_sleep();
  EXPECT_THAT(sent(), IsEmpty());
  qp->post();
  shard->ring(*qp);
  EXPECT_THAT(sent(), ElementsAre(Operation::kSendOnly, Operation::kAcknowledge));
}

TEST_F(ShardBell, AcknowledgementGoesBeforeTheThreadSleepsAgain) {
  has_one_event();
  EXPECT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
}

TEST_F(ShardBell, NobodyIsRungWhileTheThreadIsAwayForAMoment) {
  has_one_event();
  EXPECT_TRUE(nobody_hears());
  input.has_rung();
  input.packet_comes();
  EXPECT_FALSE(input.has_rung());
  // Coming back it finds what came.
  EXPECT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
  EXPECT_EQ(qp->received, 2u);
}

TEST_F(ShardBell, EngineTakesItOverFromAThreadThatStaysAway) {
  has_one_event();
  const TimePoint looks_at = sleeper.comes_by;
  ASSERT_LE(looks_at, now() + kLookInterval) << "an engine thread that sleeps for good is told";
  passes(looks_at - now() + kAbsence);
  shard->run_engine();
  EXPECT_TRUE(engine_hears());
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
}

TEST_F(ShardBell, EngineLooksAgainWhileTheThreadMayStillComeBack) {
  has_one_event();
  const Shard::EngineView view = shard->run_engine();
  EXPECT_TRUE(nobody_hears());
  EXPECT_LE(view.wake_at, now() + kLookInterval);
}

TEST_F(ShardBell, EngineSleepsForGoodWhileTheThreadSleeps) {
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
  EXPECT_EQ(shard->run_engine().wake_at, kNever);
}

// One system call in a millisecond at most, however many messages there are.
TEST_F(ShardBell, EngineIsToldToComeOncePerLook) {
  const TimePoint end = now() + std::chrono::milliseconds(20);
  TimePoint comes_at = kNever;
  int told = 0;
  while (now() < end) {
    sleeper.comes_by = kNever;
    has_one_event();
    if (sleeper.comes_by != kNever) {
      ++told;
      comes_at = std::min(comes_at, sleeper.comes_by);
    }
    passes(std::chrono::microseconds(10));
    if (now() >= comes_at) comes_at = shard->run_engine().wake_at;
  }
  EXPECT_GE(told, 1);
  EXPECT_LE(told, 20 + 10);
  EXPECT_THAT(sleeper.said(), testing::Not(testing::Contains("wake")));
}

TEST_F(ShardBell, ThreadThatLeavesForGoodGivesItToTheEngine) {
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
  shard->gives_bell_up();
  EXPECT_TRUE(engine_hears());
}

// ---- before it sleeps

class AskingAtShardBell : public ShardBell {
 protected:
  static constexpr Duration kTurn = std::chrono::microseconds(1);
  static constexpr Demand kNoDemand{.looked = true};

  AskingAtShardBell() { shard->set_halt_polling(true); }

  void takes_its_event() {
    waiter->take([](queues::EventSource&) {});
  }
  // The thread comes, and its event soon after; it may have to be woken for it.
  void is_served_soon() {
    AtBell answer = shard->goes_to_bell(*waiter);
    passes(kTurn);
    event_comes();
    while (answer != AtBell::kServed) answer = shard->looks_at_bell(*waiter, kNoDemand);
    takes_its_event();
  }
  // It asks, and nothing comes.
  Duration asks_in_vain() {
    const TimePoint began = now();
    for (AtBell answer = shard->goes_to_bell(*waiter); answer == AtBell::kAsks;) {
      passes(kTurn);
      answer = shard->looks_at_bell(*waiter, kNoDemand);
    }
    return now() - began;
  }
};

TEST_F(AskingAtShardBell, ThreadWhoseEventsFollowEachOtherAsksBeforeItSleeps) {
  EXPECT_EQ(asks_in_vain(), Duration::zero()) << "nothing is known of it";
  event_comes();
  ASSERT_EQ(shard->looks_at_bell(*waiter), AtBell::kServed);
  takes_its_event();
  is_served_soon();
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kAsks);
  EXPECT_TRUE(nobody_hears());
  input.has_rung();
  event_comes();
  EXPECT_FALSE(input.has_rung()) << "it finds it by itself";
  EXPECT_EQ(shard->looks_at_bell(*waiter, kNoDemand), AtBell::kServed);
}

TEST_F(AskingAtShardBell, ThreadThatAskedInVainIsRungForAsEver) {
  for (int i = 0; i < 3; ++i) is_served_soon();
  const Duration asked = asks_in_vain();
  EXPECT_GT(asked, Duration::zero());
  EXPECT_LE(asked, HaltPolling::kLimit + kTurn);
  EXPECT_TRUE(thread_hears());
  event_comes();
  EXPECT_TRUE(input.has_rung());
  EXPECT_EQ(shard->looks_at_bell(*waiter), AtBell::kServed);
}

TEST_F(AskingAtShardBell, ThreadSleepsAtOnceWhereProcessorsAreWanted) {
  for (int i = 0; i < 3; ++i) is_served_soon();
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kAsks);
  EXPECT_EQ(shard->looks_at_bell(*waiter, {.looked = true, .wanted = true}), AtBell::kSleeps);
  EXPECT_TRUE(thread_hears());
}

TEST_F(AskingAtShardBell, WhatItHasNotAcknowledgedIsBeforeItAsks) {
  for (int i = 0; i < 3; ++i) is_served_soon();
  sent();
  is_served_soon();
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kAsks);
  EXPECT_THAT(sent(), testing::Contains(Operation::kAcknowledge));
}

// The engine thread looks now and then, and leaves the bell to a thread that asks on.
TEST_F(AskingAtShardBell, EngineLeavesItToThreadsThatAskOn) {
  for (int i = 0; i < 3; ++i) is_served_soon();
  int looks = 0;
  for (const TimePoint end = now() + std::chrono::milliseconds(20); now() < end;) {
    ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kAsks);
    passes(kTurn);
    if (now() >= sleeper.comes_by) {
      sleeper.comes_by = shard->run_engine().wake_at;
      ++looks;
      ASSERT_FALSE(engine_hears());
    }
    event_comes();
    ASSERT_EQ(shard->looks_at_bell(*waiter, kNoDemand), AtBell::kServed);
    takes_its_event();
  }
  EXPECT_GE(looks, 1);
  EXPECT_LE(looks, 20 + 10) << "once in a millisecond";
}

// As where the engine thread brings it from a port: to ask at the bell finds nothing of that.
TEST_F(AskingAtShardBell, ThreadThatIsServedByOthersSleepsAtOnceTheNextTime) {
  for (int i = 0; i < 3; ++i) is_served_soon();
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kAsks);
  channel->post(source);
  ASSERT_EQ(shard->looks_at_bell(*waiter, kNoDemand), AtBell::kServed);
  takes_its_event();
  EXPECT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
}

// The engine thread is not woken for them meanwhile.
TEST_F(AskingAtShardBell, AlarmsGoOffWhileItAsks) {
  for (int i = 0; i < 3; ++i) is_served_soon();
  struct OneAlarm : Alarm {
    void on_alarm() override { has_gone_off = true; }
    bool has_gone_off = false;
  } alarm;
  shard->exclusively([&] { shard->set_alarm(alarm, 3 * kTurn); });
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kAsks);
  passes(3 * kTurn);
  EXPECT_EQ(shard->looks_at_bell(*waiter, kNoDemand), AtBell::kAsks);
  EXPECT_TRUE(alarm.has_gone_off);
}

TEST_F(AskingAtShardBell, PortsAreHeardWhileItAsks) {
  for (int i = 0; i < 3; ++i) is_served_soon();
  application_takes_over();
  sleeper.said();
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps) << "nobody listens to the ports";
  EXPECT_THAT(sleeper.said(), testing::Contains("listen"));
}

TEST_F(ShardBell, IsForOneThreadAtATime) {
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
  std::thread([&] {
    const auto other_channel = *queues::EventChannel::create();
    const queues::EventChannel::Waiter other(*other_channel, *input.bell());
    EXPECT_EQ(shard->goes_to_bell(other), AtBell::kNot);
  }).join();
  EXPECT_TRUE(thread_hears());
}

TEST_F(ShardBell, IsNothingInAChild) {
  ASSERT_EQ(shard->goes_to_bell(*waiter), AtBell::kSleeps);
  shard->abandon();
  EXPECT_EQ(shard->looks_at_bell(*waiter), AtBell::kNot);
  EXPECT_EQ(shard->goes_to_bell(*waiter), AtBell::kNot);
}

}  // namespace
}  // namespace verbena::engine
