// SPDX-License-Identifier: Apache-2.0
// Further sources of packets of a shard: driven by the thread that drives it, heard of by the rule of its
// port.
#include <atomic>

#include <sys/epoll.h>

#include "adapter/engine/engine_thread.h"
#include "adapter/engine/support/queue_input.h"
#include "adapter/engine/support/shard_test.h"
#include "base/epoll_sets.h"

namespace verbena::engine {
namespace {

using roce::Operation;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class ShardInput : public ShardTest {
 protected:
  ~ShardInput() override {
    if (input.input_hook.is_linked()) remove();
  }
  Result<void> add_it() {
    return shard->exclusively([&] { return shard->add_input(input); });
  }
  void remove() {
    shard->exclusively([&] { shard->remove_input(input); });
  }

  QueueInput input{*shard, *qp};
};

TEST_F(ShardInput, PollReceivesFromIt) {
  ASSERT_TRUE(add_it());
  input.packet_arrives();
  shard->poll();
  EXPECT_EQ(qp->received, 1u);
}

TEST_F(ShardInput, EngineReceivesFromItForAnApplicationThatCallsNoVerb) {
  ASSERT_TRUE(add_it());
  engine_starts();
  input.packet_arrives();
  shard->run_engine();
  EXPECT_EQ(qp->received, 1u);
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
}

TEST_F(ShardInput, IsAskedBesideThePort) {
  ASSERT_TRUE(add_it());
  packet_arrives();
  input.packet_arrives();
  shard->poll();
  EXPECT_EQ(qp->received, 2u);
}

TEST_F(ShardInput, EngineListensToItFromTheBeginningWhenNobodyPolls) {
  engine_starts();
  ASSERT_TRUE(add_it());
  EXPECT_THAT(sleeper.said(), ElementsAre("attach and listen"));
}

TEST_F(ShardInput, EngineDoesNotListenToItWhileTheApplicationPolls) {
  engine_starts();
  application_takes_over();
  ASSERT_TRUE(add_it());
  EXPECT_THAT(sleeper.said(), ElementsAre("attach"));
  input.packet_arrives();
  shard->poll();
  EXPECT_EQ(qp->received, 1u);
}

TEST_F(ShardInput, EngineOnlyLooksWhileTheApplicationPolls) {
  ASSERT_TRUE(add_it());
  engine_starts();
  application_takes_over();
  const uint32_t asked = input.times_asked;
  shard->poll();
  shard->run_engine();
  EXPECT_EQ(input.times_asked, asked + 1) << "by the poll alone";
}

// To the driver they are packets like others: an application that then waited without polling was a wrong
// guess.
TEST_F(ShardInput, ItsPacketsCountForTakingOver) {
  ASSERT_TRUE(add_it());
  engine_starts();
  application_takes_over();
  input.packet_arrives();
  polling_stops();
  sleeper.said();
  polls_for(kTakeOverAfter);
  EXPECT_THAT(sleeper.said(), IsEmpty());
  polls_for(kTakeOverAfter);
  EXPECT_THAT(sleeper.said(), ElementsAre("do not listen", "wake"));
}

TEST_F(ShardInput, LongTrafficIsTakenInTurnsWithThePorts) {
  ASSERT_TRUE(add_it());
  for (int i = 0; i < 1000; ++i) input.packet_arrives();
  packet_arrives();
  shard->poll();
  EXPECT_LT(qp->received, 1000u);
  EXPECT_EQ(arriving_packets.size(), 0u);
}

TEST_F(ShardInput, RemovedOneIsAskedNoMore) {
  ASSERT_TRUE(add_it());
  sleeper.said();
  remove();
  EXPECT_THAT(sleeper.said(), ElementsAre("detach"));
  input.packet_arrives();
  shard->poll();
  shard->run_engine();
  EXPECT_EQ(qp->received, 0u);
}

TEST_F(ShardInput, WhatCannotBeHeardIsNotAdded) {
  sleeper.attach_error = ENOSPC;
  const Result<void> added = add_it();
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ENOSPC);
  input.packet_arrives();
  shard->poll();
  EXPECT_EQ(qp->received, 0u);
}

TEST_F(ShardInput, ChildAfterForkGivesItUp) {
  ASSERT_TRUE(add_it());
  ASSERT_TRUE(shard->before_fork());
  shard->abandon();
  EXPECT_TRUE(input.abandoned);
  const uint32_t asked = input.times_asked;
  shard->poll();
  EXPECT_EQ(input.times_asked, asked);
}

TEST(ShardInputWithoutPort, Receives) {
  auto status = std::make_unique<protocol::StatusPage>();
  Shard shard(1, {}, *status, 5);
  ScriptedQp qp(roce::Qpn::in_slot(1, 7), &shard.routes());
  QueueInput input(shard, qp);
  shard.exclusively([&] {
    shard.add(qp);
    ASSERT_TRUE(shard.add_input(input));
  });
  input.packet_arrives();
  shard.poll();
  EXPECT_EQ(qp.received, 1u);
  shard.exclusively([&] {
    shard.remove_input(input);
    shard.remove(qp);
  });
}

// With the real thread: a packet wakes it, again and again, until the input is removed.
class ShardInputWithThread : public ShardInput {
 protected:
  void packets_wake_it() {
    auto thread = EngineThread::start(*shard, -1, [] { return -1; });
    ASSERT_TRUE(thread);
    ASSERT_TRUE(add_it());
    EXPECT_THAT(test::nested_epoll_sets(), IsEmpty());
    for (uint32_t i = 1; i <= 3; ++i) {
      input.packet_arrives();
      const TimePoint patience = MonotonicClock::now() + seconds(10);
      const auto received = [&] { return shard->exclusively([&] { return qp->received; }); };
      while (received() < i && MonotonicClock::now() < patience) std::this_thread::yield();
      ASSERT_EQ(received(), i);
    }
    remove();
    thread->reset();
  }
};

TEST_F(ShardInputWithThread, ItsPacketsWakeTheEngineThread) {
  packets_wake_it();
}

TEST_F(ShardInputWithThread, PacketsOfAnInputWithASetWakeTheEngineThread) {
  input.set.reset(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event readable{.events = EPOLLIN, .data = {}};
  ASSERT_EQ(::epoll_ctl(input.set.get(), EPOLL_CTL_ADD, input.arriving.readable_fd(), &readable), 0);
  packets_wake_it();
}

}  // namespace
}  // namespace verbena::engine
