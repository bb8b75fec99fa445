// SPDX-License-Identifier: Apache-2.0
// Who drives a shard: the application that rings and polls, or the engine thread.
#include "adapter/engine/support/shard_test.h"

namespace verbena::engine {
namespace {

using roce::Operation;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class ShardDriver : public ShardTest {};

TEST_F(ShardDriver, RingSendsAtOnce) {
  qp->post();
  shard->ring(*qp);
  EXPECT_THAT(sent(), ElementsAre(Operation::kSendOnly));
}

TEST_F(ShardDriver, PollReceives) {
  packet_arrives();
  shard->poll();
  EXPECT_EQ(qp->received, 1u);
}

TEST_F(ShardDriver, PollSendsWhatArrivalsMadePossible) {
  packet_arrives();
  qp->post();  // nobody rang
  shard->poll();
  EXPECT_THAT(sent(), testing::Contains(Operation::kSendOnly));
}

// ---- taking over

TEST_F(ShardDriver, EngineListensFromTheStart) {
  EXPECT_EQ(shard->run_engine().wake_at, kNever);
  EXPECT_THAT(sleeper.said(), ElementsAre("listen"));
}

TEST_F(ShardDriver, EngineReceivesForAnApplicationThatCallsNoVerb) {
  engine_starts();
  packet_arrives();
  shard->run_engine();
  EXPECT_EQ(qp->received, 1u);
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
}

TEST_F(ShardDriver, ApplicationTakesOverWhenItHasPolledForAWhile) {
  engine_starts();
  polls_for(kTakeOverAfter - kBetweenPolls);
  EXPECT_THAT(sleeper.said(), IsEmpty());
  passes(kBetweenPolls);
  shard->poll();
  EXPECT_THAT(sleeper.said(), ElementsAre("do not listen", "wake"));
  shard->poll();
  EXPECT_THAT(sleeper.said(), IsEmpty());
}

// As ib_write_lat does: polls until its message is acknowledged, and then waits on its memory for the answer.
TEST_F(ShardDriver, ApplicationThatPollsALittleAndThenWaitsOnItsMemoryDoesNotTakeOver) {
  engine_starts();
  for (int message = 0; message < 1000; ++message) {
    qp->post();
    shard->ring(*qp);
    polls_for(kTakeOverAfter / 2);
    packet_arrives();
    shard->poll();
    passes(kAbsence);
    packet_arrives();
    shard->run_engine();
    ASSERT_EQ(qp->received, static_cast<uint32_t>(2 * (message + 1))) << "by the engine thread, at once";
  }
  EXPECT_THAT(sleeper.said(), testing::Each("listen"));
}

TEST_F(ShardDriver, ApplicationThatPollsWhileTheEngineReceivesTakesOver) {
  engine_starts();
  polls_for(kTakeOverAfter / 2);
  packet_arrives();
  shard->run_engine();
  sleeper.said();
  polls_for(kTakeOverAfter / 2);
  EXPECT_THAT(sleeper.said(), ElementsAre("do not listen", "wake"));
}

// Of what goes on while the engine thread holds the lock, a poll sees nothing.
TEST_F(ShardDriver, ApplicationThatWaitsForTheEngineThreadIsStillPolling) {
  engine_starts();
  polls_for(kTakeOverAfter / 2);
  packet_arrives();
  qp->on_transmit = [&] {  // the acknowledgement
    std::thread([&] { shard->poll(); }).join();
    passes(10 * kAbsence);
  };
  shard->run_engine();
  sleeper.said();
  shard->poll();
  EXPECT_THAT(sleeper.said(), ElementsAre("do not listen", "wake"));
}

TEST_F(ShardDriver, TimeInAVerbIsNoAbsence) {
  engine_starts();
  polls_for(kTakeOverAfter / 2);
  qp->on_transmit = [&] { passes(10 * kAbsence); };
  qp->post();
  shard->ring(*qp);
  shard->poll();
  EXPECT_THAT(sleeper.said(), testing::Contains("do not listen"));
}

TEST_F(ShardDriver, EngineOnlyLooksWhileTheApplicationPollsEverMoreRarely) {
  using std::chrono::microseconds;
  engine_starts();
  application_takes_over();  // and had a look
  for (const int interval : {100, 200, 400, 800, 1600, 3200, 4000, 4000}) {
    shard->poll();
    packet_arrives();
    EXPECT_EQ(shard->run_engine().wake_at, now() + microseconds(interval));
    EXPECT_THAT(sleeper.said(), IsEmpty());
  }
  EXPECT_EQ(arriving_packets.size(), 1u) << "the engine thread received though the application polls";
}

TEST_F(ShardDriver, EngineTakesBackWhenPollingStops) {
  engine_starts();
  application_takes_over();
  packet_arrives();
  passes(kAbsence);
  EXPECT_EQ(shard->run_engine().wake_at, kNever);
  EXPECT_EQ(qp->received, 1u);
  EXPECT_THAT(sleeper.said(), ElementsAre("listen"));
}

TEST_F(ShardDriver, TakingOverTakesLongerWhenPacketsHaveWaited) {
  engine_starts();
  application_takes_over();
  packet_arrives();
  polling_stops();
  sleeper.said();
  polls_for(2 * kTakeOverAfter - kBetweenPolls);
  EXPECT_THAT(sleeper.said(), IsEmpty());
  passes(kBetweenPolls);
  shard->poll();
  EXPECT_THAT(sleeper.said(), ElementsAre("do not listen", "wake"));
}

TEST_F(ShardDriver, TakingOverIsAsQuickAgainAfterSteadyPolling) {
  engine_starts();
  application_takes_over();
  packet_arrives();
  polling_stops();
  application_takes_over(2 * kTakeOverAfter);
  for (int look = 0; look < 16; ++look) {
    shard->poll();
    shard->run_engine();
  }
  polling_stops();
  sleeper.said();
  polls_for(kTakeOverAfter);
  EXPECT_THAT(sleeper.said(), ElementsAre("do not listen", "wake"));
}

TEST_F(ShardDriver, ApplicationThatPollsRarelyDoesNotTakeOver) {
  engine_starts();
  for (int i = 0; i < 1000; ++i) {
    shard->poll();
    passes(kAbsence);
  }
  EXPECT_THAT(sleeper.said(), IsEmpty());
}

TEST_F(ShardDriver, ForAnApplicationAboutToSleepTheEngineListensAtOnce) {
  engine_starts();
  application_takes_over();
  shard->expect_sleep();
  EXPECT_THAT(sleeper.said(), ElementsAre("listen"));
  shard->expect_sleep();
  EXPECT_THAT(sleeper.said(), IsEmpty());
  packet_arrives();
  shard->poll();  // between two sleeps
  shard->run_engine();
  EXPECT_EQ(qp->received, 1u);
}

TEST_F(ShardDriver, EngineThatFindsTheApplicationAtWorkDoesNotWaitForIt) {
  engine_starts();
  Shard::EngineView view;
  qp->on_transmit = [&] { std::thread([&] { view = shard->run_engine(); }).join(); };
  qp->post();
  shard->ring(*qp);
  EXPECT_THAT(sleeper.said(), ElementsAre("listen")) << "for the packets that come from now on";
  EXPECT_GT(view.wake_at, now());
  EXPECT_LE(view.wake_at, now() + milliseconds(1)) << "for all else";
}

// Else it would be woken for them, find the lock taken again, and so on.
TEST_F(ShardDriver, WhatAnEngineThatFindsTheApplicationAtWorkCameForIsReceived) {
  engine_starts();
  qp->on_transmit = [&] {
    packet_arrives();
    std::thread([&] { shard->run_engine(); }).join();
  };
  qp->post();
  shard->ring(*qp);
  EXPECT_EQ(qp->received, 1u);
  EXPECT_THAT(sent(), ElementsAre(Operation::kSendOnly)) << "what came may be replied to";
  EXPECT_LE(sleeper.comes_by, now() + kLongestAbsence);
  qp->on_transmit = nullptr;
  passes(kLongestAbsence);
  shard->run_engine();
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
}

TEST_F(ShardDriver, NobodyListensForAnEngineThatLooksWhileTheApplicationPolls) {
  engine_starts();
  application_takes_over();
  qp->on_transmit = [&] { std::thread([&] { shard->run_engine(); }).join(); };
  qp->post();
  shard->ring(*qp);
  EXPECT_THAT(sleeper.said(), IsEmpty());
}

// ---- doorbells

struct WayToHoldTheLock {
  const char* name;
  void (*go)(Shard&, ScriptedQp&);
};
void PrintTo(const WayToHoldTheLock& way, std::ostream* out) {
  *out << way.name;
}

class ShardDoorbell : public ShardTest, public testing::WithParamInterface<WayToHoldTheLock> {};

// Rung during the last transmission, by a thread that finds the lock taken and goes its way.
TEST_P(ShardDoorbell, IsAnsweredByTheHolderOfTheLock) {
  ScriptedQp other(add_qpn(), &shard->routes());
  add(other);
  engine_starts();
  application_takes_over();
  shard->poll();
  qp->gathers = true;
  qp->post();
  shard->ring(*qp);
  ASSERT_EQ(qp->unsent(), 1u);
  qp->gathers = false;
  qp->on_transmit = [&] {
    other.post();
    std::thread([&] { shard->ring(other); }).join();
  };
  GetParam().go(*shard, *qp);
  EXPECT_EQ(qp->unsent(), 0u);
  EXPECT_EQ(other.unsent(), 0u);
}

constexpr WayToHoldTheLock kWays[] = {
    {"ring", [](Shard& shard, ScriptedQp& qp) { shard.ring(qp); }},
    {"poll", [](Shard& shard, ScriptedQp&) { shard.poll(); }},
    {"expect_sleep", [](Shard& shard, ScriptedQp&) { shard.expect_sleep(); }},
    {"exclusively", [](Shard& shard, ScriptedQp&) { shard.exclusively([] {}); }},
    {"look", [](Shard& shard, ScriptedQp&) { shard.run_engine(); }},
    {"fork",
     [](Shard& shard, ScriptedQp&) {
       if (shard.before_fork()) shard.after_fork_in_parent();
     }},
};
INSTANTIATE_TEST_SUITE_P(EveryWay, ShardDoorbell, testing::ValuesIn(kWays),
                         [](const auto& way) { return std::string(way.param.name); });

// During the last thing that the engine thread does before it sleeps.
TEST_F(ShardDriver, DoorbellRungWhileTheEngineDrivesIsAnswered) {
  ScriptedQp other(add_qpn(), &shard->routes());
  add(other);
  engine_starts();
  application_takes_over();
  qp->gathers = true;
  qp->post();
  shard->ring(*qp);
  qp->gathers = false;
  qp->on_transmit = [&] {
    other.post();
    std::thread([&] { shard->ring(other); }).join();
  };
  polling_stops();
  EXPECT_EQ(qp->unsent(), 0u);
  EXPECT_EQ(other.unsent(), 0u);
}

TEST_F(ShardDriver, RemovedQpSendsWhatItOwesAndIsForgotten) {
  engine_starts();
  application_takes_over();
  ScriptedQp other(add_qpn(), &shard->routes());
  add(other);
  packet_arrives_for(other.config().qpn);
  shard->poll();
  ASSERT_THAT(sent(), IsEmpty());
  shard->exclusively([&] {
    std::thread([&] {
      other.post();
      shard->ring(other);
    }).join();
    shard->remove(other);
  });
  EXPECT_THAT(sent(), ElementsAre(Operation::kSendOnly, Operation::kAcknowledge));
  EXPECT_FALSE(other.ready_hook.is_linked() || other.acknowledgement_hook.is_linked() ||
               other.timer_hook.is_linked());
}

// ---- timers

TEST_F(ShardDriver, SleepingEngineIsToldOfATimer) {
  engine_starts();
  qp->post();
  qp->due = now() + milliseconds(20);
  const TimePoint due = qp->due;
  shard->ring(*qp);
  EXPECT_THAT(sleeper.said(), ElementsAre("wake"));
  const Shard::EngineView view = shard->run_engine();
  EXPECT_GT(view.wake_at, due - milliseconds(1));
  EXPECT_LT(view.wake_at, due + milliseconds(1));
}

TEST_F(ShardDriver, EngineIsNotToldTwiceNorOfALaterTimer) {
  engine_starts();
  qp->due = now() + milliseconds(20);
  shard->ring(*qp);
  EXPECT_THAT(sleeper.said(), ElementsAre("wake"));
  shard->ring(*qp);
  EXPECT_THAT(sleeper.said(), IsEmpty());
  shard->run_engine();
  sleeper.said();
  ScriptedQp other(add_qpn(), &shard->routes());
  other.due = qp->due - milliseconds(2);  // it may be late by that
  add(other);
  shard->ring(other);
  EXPECT_THAT(sleeper.said(), IsEmpty());
}

TEST_F(ShardDriver, EngineCallsTheTimer) {
  engine_starts();
  const TimePoint due = now() + milliseconds(3);
  qp->due = due;
  shard->ring(*qp);
  const TimePoint patience = due + seconds(10);
  while (qp->timer_fired_at == kNever && now() < patience) {
    const Shard::EngineView view = shard->run_engine();
    if (qp->timer_fired_at == kNever) {
      ASSERT_NE(view.wake_at, kNever);
      passes(view.wake_at - now());
    }
  }
  EXPECT_GE(qp->timer_fired_at, due);
  EXPECT_NE(qp->timer_fired_at, kNever);
}

TEST_F(ShardDriver, PollingApplicationCallsTheTimerAndWakesNobodyForIt) {
  engine_starts();
  application_takes_over();
  qp->due = now() + milliseconds(3);
  shard->ring(*qp);
  const TimePoint patience = qp->due + seconds(10);
  for (; qp->timer_fired_at == kNever && now() < patience; passes(20 * kBetweenPolls)) shard->poll();
  EXPECT_NE(qp->timer_fired_at, kNever);
  EXPECT_THAT(sleeper.said(), IsEmpty());
}

}  // namespace
}  // namespace verbena::engine
