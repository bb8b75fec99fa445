// SPDX-License-Identifier: Apache-2.0
// What a shard keeps back: acknowledgements for a reply, small requests for company. Only for an application
// that polls, and never for long.
#include <functional>

#include <sys/syscall.h>
#include <unistd.h>

#include "adapter/engine/driving.h"
#include "adapter/engine/support/shard_test.h"

namespace {

std::function<void()> others_have_the_processor;

}  // namespace

// In the place of the C library's, for the whole program.
extern "C" int sched_yield() noexcept {
  if (others_have_the_processor) {
    std::exchange(others_have_the_processor, nullptr)();
    return 0;
  }
  return static_cast<int>(::syscall(SYS_sched_yield));
}

namespace verbena::engine {
namespace {

using roce::Operation;
using testing::ElementsAre;
using testing::IsEmpty;

class ShardWait : public ShardTest {
 protected:
  // A polling application has received a message.
  void received_by_polling() {
    engine_starts();
    application_takes_over();
    packet_arrives();
    shard->poll();
  }
};

TEST_F(ShardWait, AcknowledgementWaitsForTheReplyAndTravelsWithIt) {
  received_by_polling();
  EXPECT_THAT(sent(), IsEmpty());
  qp->post();
  shard->ring(*qp);
  EXPECT_THAT(sent(), ElementsAre(Operation::kSendOnly, Operation::kAcknowledge));
}

TEST_F(ShardWait, AcknowledgementGoesWithTheNextPoll) {
  received_by_polling();
  shard->poll();
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
  shard->poll();
  EXPECT_THAT(sent(), IsEmpty());
}

TEST_F(ShardWait, AcknowledgementDoesNotGoWithAnothersRequest) {
  received_by_polling();
  ScriptedQp other(add_qpn(), &shard->routes());
  add(other);
  other.post();
  shard->ring(other);
  EXPECT_THAT(sent(), ElementsAre(Operation::kSendOnly));
}

// A program whose poll finds nothing looks for events of its connections next. It must not meet a
// disconnection before the completion of what had come by then.
TEST_F(ShardWait, APollFindsWhatHasComeWhileOthersHadTheProcessor) {
  engine_starts();
  application_takes_over();
  bool is_there = false;
  others_have_the_processor = [&] {
    packet_arrives();
    is_there = true;
  };
  for (int polls = 0; polls < 1000 && !is_there; ++polls) {
    passes(kBetweenPolls);
    shard->poll();
  }
  ASSERT_TRUE(is_there) << "the thread has never yielded";
  EXPECT_EQ(port->counters().received_packets, 1u);
}

// It may be moved to ERR for good, and the peer hear of that by another way.
TEST_F(ShardWait, AcknowledgementGoesBeforeItsQueuePairEnds) {
  received_by_polling();
  shard->exclusively([this] {
    shard->settle();
    EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
  });
}

// The acknowledgement of its last message may be behind others.
TEST_F(ShardWait, AllThatHasComeIsTakenBeforeItsQueuePairEnds) {
  received_by_polling();
  port->max_at_once = 1;
  for (int i = 0; i < 5; ++i) packet_arrives();
  shard->exclusively([this] { shard->settle(); });
  EXPECT_EQ(port->counters().received_packets, 6u);
}

// Also a message of more packets than one round takes.
TEST_F(ShardWait, ALongMessageIsTakenWholeBeforeItsQueuePairEnds) {
  received_by_polling();
  constexpr uint32_t kPackets = 3 * kReceiveBudget;
  for (uint32_t i = 0; i < kPackets; ++i) packet_arrives();
  shard->exclusively([this] { shard->settle(); });
  EXPECT_EQ(port->counters().received_packets, 1 + kPackets);
}

TEST_F(ShardWait, EngineSendsTheAcknowledgementWhenPollingStops) {
  received_by_polling();
  shard->run_engine();
  EXPECT_THAT(sent(), IsEmpty());
  polling_stops();
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
}

TEST_F(ShardWait, AcknowledgementGoesBeforeTheApplicationSleeps) {
  received_by_polling();
  shard->expect_sleep();
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
}

TEST_F(ShardWait, AcknowledgementGoesBeforeTheProcessExits) {
  received_by_polling();
  shard->flush_at_exit();
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
}

// It has polled once and may never call a verb again, while the engine thread sleeps.
TEST_F(ShardWait, AcknowledgementDoesNotWaitWhileTheEngineListens) {
  engine_starts();
  packet_arrives();
  shard->poll();
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
}

// It drove, went away, and packets waited: the guess that it drives takes longer from then on. It polls
// again, and its acknowledgements wait as before, but somebody must come for them.
TEST_F(ShardWait, AcknowledgementWaitsForAnApplicationThatPollsAgainButDoesNotDriveYet) {
  received_by_polling();
  passes(kAbsence);
  packet_arrives();
  shard->run_engine();
  sent();
  polls_for(kTakeOverAfter);
  packet_arrives();
  sleeper.said();
  shard->poll();
  EXPECT_THAT(sleeper.said(), IsEmpty()) << "the engine thread listens on";
  EXPECT_THAT(sent(), IsEmpty());
  EXPECT_LE(sleeper.comes_by, now() + kLongestAbsence);
  polling_stops();
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
}

// The reply is on its way: a peer that has yet to see its request complete goes on polling for it meanwhile.
TEST_F(ShardWait, AcknowledgementOfWhatTheEngineReceivedWaitsForAnApplicationThatCalledAVerbJustBefore) {
  engine_starts();
  shard->poll();
  packet_arrives();
  passes(kLongestAbsence / 2);
  const TimePoint comes_at = shard->run_engine().wake_at;
  EXPECT_THAT(sent(), IsEmpty());
  EXPECT_LE(comes_at, now() + kLongestAbsence / 2);
  qp->post();
  shard->ring(*qp);
  EXPECT_THAT(sent(), ElementsAre(Operation::kSendOnly, Operation::kAcknowledge));
}

// As one does that registers memory meanwhile, or is told something by the agent.
TEST_F(ShardWait, AcknowledgementThatTheEngineHoldsIsNotSentByAnotherThreadThatHadTheLock) {
  engine_starts();
  shard->poll();
  packet_arrives();
  passes(kLongestAbsence / 2);
  shard->run_engine();
  shard->exclusively([] {});
  EXPECT_THAT(sent(), IsEmpty());
  passes(kLongestAbsence / 2);
  shard->exclusively([] {});
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
}

TEST_F(ShardWait, EngineSendsWhatItHeldWhenTheReplyDoesNotCome) {
  engine_starts();
  shard->poll();
  packet_arrives();
  passes(kLongestAbsence / 2);
  const TimePoint comes_at = shard->run_engine().wake_at;
  passes(comes_at - now());
  shard->run_engine();
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
}

TEST_F(ShardWait, EngineAcknowledgesAtOnceForAnApplicationThatSleeps) {
  engine_starts();
  shard->poll();
  shard->expect_sleep();
  packet_arrives();
  shard->run_engine();
  EXPECT_THAT(sent(), ElementsAre(Operation::kAcknowledge));
}

TEST_F(ShardWait, SmallRequestsGatherUntilTheNextPoll) {
  engine_starts();
  application_takes_over();
  qp->gathers = true;
  for (int i = 0; i < 3; ++i) {
    qp->post();
    shard->ring(*qp);
  }
  EXPECT_THAT(sent(), IsEmpty());
  shard->poll();
  EXPECT_THAT(sent(), ElementsAre(Operation::kSendOnly, Operation::kSendOnly, Operation::kSendOnly));
}

TEST_F(ShardWait, GatheredRequestsGoWhenTheQpSaysSo) {
  engine_starts();
  application_takes_over();
  qp->gathers = true;
  qp->post();
  shard->ring(*qp);
  qp->gathers = false;  // enough are together
  qp->post();
  shard->ring(*qp);
  EXPECT_THAT(sent(), ElementsAre(Operation::kSendOnly, Operation::kSendOnly));
}

TEST_F(ShardWait, GatheredRequestsHoldUpNobodyElse) {
  engine_starts();
  application_takes_over();
  qp->gathers = true;
  qp->post();
  shard->ring(*qp);
  ScriptedQp other(add_qpn(), &shard->routes());
  add(other);
  qp->gathers = true;
  sent();
  qp->post();
  shard->ring(*qp);
  other.post();
  shard->ring(other);
  EXPECT_THAT(sent(), ElementsAre(Operation::kSendOnly));
  EXPECT_EQ(other.unsent(), 0u);
}

TEST_F(ShardWait, GatheredRequestsGoWithTheEnginesNextLook) {
  engine_starts();
  application_takes_over();
  qp->gathers = true;
  qp->post();
  shard->ring(*qp);
  shard->run_engine();
  EXPECT_THAT(sent(), ElementsAre(Operation::kSendOnly));
}

TEST_F(ShardWait, NothingGathersWhileTheEngineListens) {
  engine_starts();
  qp->gathers = true;
  qp->post();
  shard->ring(*qp);
  EXPECT_THAT(sent(), ElementsAre(Operation::kSendOnly));
}

}  // namespace
}  // namespace verbena::engine
