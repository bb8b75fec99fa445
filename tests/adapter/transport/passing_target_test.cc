// SPDX-License-Identifier: Apache-2.0
// An XRC target whose requests are for shared receive queues of other processes. It forwards them in order,
// and acknowledges them when their owner has answered.
#include <vector>

#include "adapter/transport/forwarded_requests.h"
#include "adapter/transport/support/shared_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Records the forwarded requests.
struct RecordingOwners final : QueueOwners {
  struct Passed {
    uint32_t psn, run, msn;
    uint32_t queue;
    bool repeated;
  };
  uint32_t new_run() override { return ++last_run; }
  bool pass(const ForwardedRequest& request) override {
    if (full) return false;
    const roce::Headers& headers = request.packet.headers;
    passed.push_back({headers.psn.value(), request.run, request.msn, headers.xrc_srq, request.repeated});
    return true;
  }
  void end(const QueuePair&) override { ++ended; }

  std::vector<uint32_t> psns() const {
    std::vector<uint32_t> all;
    for (const Passed& one : passed) all.push_back(one.psn);
    return all;
  }

  std::vector<Passed> passed;
  uint32_t last_run = 0;
  int ended = 0;
  bool full = false;
};

class PassingTargetTest : public SharedTest {
 protected:
  static constexpr uint64_t kDomain = 5;
  // Queue numbers in slots 1 and 2; our own slot is 0.
  static constexpr uint32_t kOne = 1u << 14 | 7;
  static constexpr uint32_t kTwo = 2u << 14 | 7;

  void SetUp() override {
    SharedTest::SetUp();
    e.bring_up(IBV_QPS_RTR);
    cq = *queues::CompletionQueue::create(64, &cq_log);
    local = *queues::SharedReceiveQueue::create({.requests = 16,
                                                 .sges = 4,
                                                 .pd = kTestPd,
                                                 .listener = &limit,
                                                 .cq = cq.get(),
                                                 .number = *table.reserve(),
                                                 .xrc_domain = kDomain});
    table.add(*local);
  }

  void send(uint32_t psn, uint32_t queue, Op operation = Op::kSendOnly, bool asks = true) {
    const ConstBytes payload =
        data(roce::kOpcodes[roce::make_opcode(roce::Service::kXrc, operation)].ends_message ? 10 : 256);
    roce::Headers headers = request(roce::Service::kXrc, operation, psn, payload);
    headers.ack_request = asks;
    headers.xrc_srq = queue;
    EXPECT_EQ(e.receive(headers, payload), Verdict::kAccepted);
  }
  void read(uint32_t psn, uint32_t queue, uint32_t bytes) {
    roce::Headers headers = request(roce::Service::kXrc, Op::kReadRequest, psn, {});
    headers.ack_request = false;
    headers.xrc_srq = queue;
    headers.dma_length = bytes;
    e.receive(headers);
  }
  void answer(uint8_t syndrome, uint32_t psn, uint32_t msn = 1, uint32_t owner = 1) {
    e.qp->on_owner_answer({.owner = owner,
                           .run = owners.last_run,
                           .syndrome = syndrome,
                           .psn = roce::Psn(psn),
                           .msn = msn,
                           .event = {}});
  }
  void accept(uint32_t psn, uint32_t msn = 1, uint32_t owner = 1) {
    answer(roce::ack_syndrome(), psn, msn, owner);
  }
  void expect_nothing_sent() { EXPECT_THAT(e.transmitted(), IsEmpty()); }
  void expect_no_answer() { EXPECT_THAT(answers(e), IsEmpty()); }
  // Returns the SACKs that were sent.
  std::vector<Sack> told() {
    std::vector<Sack> all;
    for (const SentPacket& p : e.transmitted()) {
      if (p.headers.opcode == roce::kSackOpcode) all.push_back(Sack::read(p.payload));
    }
    return all;
  }
  // Makes the route lossless, so that the target keeps no early packets.
  void lose_nothing() {
    e.qp->enter(IBV_QPS_RESET);
    e.routes.route.traits.lossless = true;
    e.bring_up(IBV_QPS_RTR);
  }
  // Tells the target that the requester understands SACKs.
  void hear() { EXPECT_EQ(e.receive(heard_at(e.qp->next_receive_psn())), Verdict::kAccepted); }

  queues::SharedReceiveQueueTable table{0};
  EventLog cq_log;
  RecordingOwners owners;
  std::unique_ptr<queues::CompletionQueue> cq;
  std::unique_ptr<queues::SharedReceiveQueue> local;
  Endpoint<XrcTarget> e{
      {.recv_requests = 0, .keys = &memory.keys(), .srqs = &table, .xrc_domain = kDomain, .owners = &owners}};
};

TEST_F(PassingTargetTest, AcknowledgesWhenTheOwnerHasAnswered) {
  send(200, kOne);
  ASSERT_THAT(owners.psns(), ElementsAre(200u));
  EXPECT_EQ(owners.passed[0].queue, kOne);
  expect_nothing_sent();
  accept(200, 1);
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].headers.syndrome, roce::ack_syndrome());
  EXPECT_EQ(packets[0].psn(), 200u);
  EXPECT_EQ(packets[0].headers.msn, 1u);
}

TEST_F(PassingTargetTest, PassesOnWhatFollowsBeforeTheFirstIsAnswered) {
  for (uint32_t psn = 200; psn < 210; ++psn) send(psn, kOne);
  EXPECT_EQ(owners.passed.size(), 10u);
  EXPECT_EQ(owners.passed[9].run, owners.passed[0].run);
  accept(204, 5);
  expect_answer(e, roce::ack_syndrome(), 204);
  accept(209, 10);
  expect_answer(e, roce::ack_syndrome(), 209);
  EXPECT_EQ(e.qp->next_receive_psn(), roce::Psn(210));
}

TEST_F(PassingTargetTest, TellsTheRequesterOnlyWhatItAskedFor) {
  send(200, kOne, Op::kSendOnly, false);
  accept(200);
  expect_nothing_sent();
  send(201, kOne, Op::kSendOnly, true);
  accept(201, 2);
  expect_answer(e, roce::ack_syndrome(), 201);
}

TEST_F(PassingTargetTest, DropsDuplicatesOfWhatIsUnansweredAndAcknowledgesOthersAgain) {
  send(200, kOne);
  send(201, kOne);
  accept(200);
  expect_answer(e, roce::ack_syndrome(), 200);
  send(201, kOne);
  EXPECT_EQ(owners.passed.size(), 2u);
  expect_nothing_sent();
  send(200, kOne);
  EXPECT_EQ(owners.passed.size(), 2u);
  expect_answer(e, roce::ack_syndrome(), 200);
}

// A NAK would acknowledge requests that their owner has not answered yet.
TEST_F(PassingTargetTest, ReportsAGapWhenEverythingBeforeItIsAnswered) {
  send(200, kOne);
  send(202, kOne);
  expect_no_answer();
  accept(200);
  expect_answer(e, roce::nak_syndrome(NakCode::kSequenceError), 201);
  send(201, kOne);
  EXPECT_THAT(owners.psns(), ElementsAre(200u, 201u, 202u));
}

TEST_F(PassingTargetTest, AsksToWaitWhenTheOwnerDoesAndPassesOnAgain) {
  for (uint32_t psn = 200; psn < 204; ++psn) send(psn, kOne);
  answer(roce::rnr_syndrome(12), 202, 2);
  expect_answer(e, roce::rnr_syndrome(12), 202);
  EXPECT_EQ(e.qp->next_receive_psn(), roce::Psn(202));
  send(203, kOne);  // was sent before the NAK arrived
  EXPECT_EQ(owners.passed.size(), 4u);
  send(202, kOne);
  ASSERT_EQ(owners.passed.size(), 6u);
  EXPECT_NE(owners.passed[4].run, owners.passed[0].run) << "what was passed on of the first is void";
  EXPECT_EQ(owners.passed[4].msn, 2u);
  accept(202, 3);
  expect_answer(e, roce::ack_syndrome(), 202);
}

TEST_F(PassingTargetTest, IsRefusedAsTheOwnerSays) {
  send(200, kOne);
  send(201, kOne);
  e.qp->on_owner_answer({.owner = 1,
                         .run = owners.last_run,
                         .syndrome = roce::nak_syndrome(NakCode::kRemoteAccess),
                         .psn = roce::Psn(201),
                         .msn = 1,
                         .event = IBV_EVENT_QP_ACCESS_ERR});
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  EXPECT_THAT(e.log.events, testing::Contains(IBV_EVENT_QP_ACCESS_ERR));
  EXPECT_EQ(owners.ended, 1);
  expect_answer(e, roce::nak_syndrome(NakCode::kRemoteAccess), 201);
}

TEST_F(PassingTargetTest, FailsWithAnOwnerThatFailsBetweenTwoRequests) {
  send(200, kOne);
  accept(200);
  expect_answer(e, roce::ack_syndrome(), 200);
  answer(roce::nak_syndrome(NakCode::kRemoteOperational), 201);
  expect_answer(e, roce::nak_syndrome(NakCode::kRemoteOperational), 201);
}

TEST_F(PassingTargetTest, TheEndOfAnOwnerAnswersWhatItOwes) {
  send(200, kOne);
  send(201, kOne);
  accept(200);
  e.qp->on_owner_gone(1, NakCode::kRemoteOperational);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  expect_answer(e, roce::nak_syndrome(NakCode::kRemoteOperational), 201);
}

TEST_F(PassingTargetTest, TheEndOfAnOwnerThatOwesNothingIsNoMatter) {
  send(200, kOne);
  accept(200);
  e.qp->on_owner_gone(1, NakCode::kRemoteOperational);
  e.qp->on_owner_gone(2, NakCode::kRemoteOperational);
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTR);
  expect_answer(e, roce::ack_syndrome(), 200);
  send(201, kTwo);
  accept(201, 2, 2);
  expect_answer(e, roce::ack_syndrome(), 201);
}

TEST_F(PassingTargetTest, TheEndOfAnOwnerInTheMidstOfAMessageEndsTheTarget) {
  send(200, kOne, Op::kSendFirst);
  accept(200, 0);
  e.qp->on_owner_gone(1, NakCode::kRemoteOperational);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
}

// ---- one owner at a time

TEST_F(PassingTargetTest, HoldsBackWhatIsForAnotherOwnerUntilTheFirstHasAnswered) {
  send(200, kOne);
  send(201, kTwo);
  send(202, kTwo);
  EXPECT_THAT(owners.psns(), ElementsAre(200u));
  expect_no_answer();
  accept(200);
  expect_answer(e, roce::ack_syndrome(), 200);
  EXPECT_THAT(owners.psns(), ElementsAre(200u, 201u, 202u));
  EXPECT_NE(owners.passed[0].run, owners.passed[1].run);
}

TEST_F(PassingTargetTest, AsksForWhatItHeldBackWhereItKeepsNothing) {
  lose_nothing();
  send(200, kOne);
  send(201, kTwo);
  send(202, kTwo);
  accept(200);
  EXPECT_THAT(owners.psns(), ElementsAre(200u));
  expect_answer(e, roce::nak_syndrome(NakCode::kSequenceError), 201);
  send(201, kTwo);
  send(202, kTwo);
  EXPECT_THAT(owners.psns(), ElementsAre(200u, 201u, 202u));
}

TEST_F(PassingTargetTest, HoldsBackWhatIsForItsOwnProcessToo) {
  SharedTest::post(*local, 1);
  send(200, kOne);
  send(201, local->number());
  EXPECT_TRUE(cq->empty());
  accept(200);
  EXPECT_EQ(e.completion(*cq).wr_id, 1u);
  expect_answer(e, roce::ack_syndrome(), 201);
}

TEST_F(PassingTargetTest, AnswersInOrderWhenItsOwnProcessCameFirst) {
  SharedTest::post(*local, 1);
  send(200, local->number());
  send(201, kOne);
  expect_answer(e, roce::ack_syndrome(), 200);
  EXPECT_EQ(owners.passed[0].msn, 1u);
  accept(201, 2);
  expect_answer(e, roce::ack_syndrome(), 201);
}

TEST_F(PassingTargetTest, RefusesAMessageThatChangesItsOwner) {
  send(200, kOne, Op::kSendFirst);
  accept(200, 0);
  e.transmitted();
  send(201, kTwo, Op::kSendLast);
  EXPECT_EQ(owners.passed.size(), 1u);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  expect_answer(e, roce::nak_syndrome(NakCode::kInvalidRequest), 201);
}

TEST_F(PassingTargetTest, RefusesAMessageThatComesHomeInItsMidst) {
  SharedTest::post(*local, 1);
  send(200, kOne, Op::kSendFirst);
  accept(200, 0);
  e.transmitted();
  send(201, local->number(), Op::kSendLast);
  expect_answer(e, roce::nak_syndrome(NakCode::kInvalidRequest), 201);
}

TEST_F(PassingTargetTest, RefusesAMessageThatGoesAbroadInItsMidst) {
  SharedTest::post(*local, 1);
  send(200, local->number(), Op::kSendFirst);
  send(201, kOne, Op::kSendLast);
  EXPECT_THAT(owners.passed, IsEmpty());
  expect_answer(e, roce::nak_syndrome(NakCode::kInvalidRequest), 201);
  EXPECT_EQ(e.completion(*cq).status, IBV_WC_REM_INV_REQ_ERR);
}

// ---- early packets

TEST_F(PassingTargetTest, KeepsWhatComesEarlyAlsoWhileAnswersAreAwaited) {
  hear();
  send(200, kOne);
  send(202, kOne);
  expect_no_answer();
  send(201, kOne);
  EXPECT_THAT(owners.psns(), ElementsAre(200u, 201u, 202u));
  EXPECT_EQ(owners.passed[2].run, owners.passed[0].run);
  accept(202, 3);
  expect_answer(e, roce::ack_syndrome(), 202);
}

// The requester does not understand SACKs, and would take a NAK for a loss.
TEST_F(PassingTargetTest, AsksForNothingWhenTheGapHasClosedBeforeTheAnswer) {
  send(200, kOne);
  send(202, kOne);
  send(201, kOne);
  accept(202, 3);
  expect_answer(e, roce::ack_syndrome(), 202);
}

TEST_F(PassingTargetTest, AsksForAGapThatIsStillThereAtTheAnswer) {
  send(200, kOne);
  send(202, kOne);
  send(204, kOne);
  send(201, kOne);
  accept(202, 3);
  expect_answer(e, roce::nak_syndrome(NakCode::kSequenceError), 203);
}

// The SACK counts packets that wait for an owner as received, and reports the gap behind them.
TEST_F(PassingTargetTest, TellsOfWhatWaitsForAnOwnerAsOfWhatHasCome) {
  hear();
  send(200, kOne);
  send(201, kTwo);
  send(202, kTwo);
  send(205, kTwo);
  send(206, kTwo);
  const auto all = told();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().expected, roce::Psn(203));
  ASSERT_EQ(all.back().count, 1u);
  EXPECT_EQ(all.back().ranges[0].first, roce::Psn(205));
  EXPECT_EQ(all.back().ranges[0].count, 2u);
}

TEST_F(PassingTargetTest, TellsOneWhoAsksAgainThatItHasCome) {
  hear();
  send(200, kOne);
  send(201, kOne);
  EXPECT_TRUE(told().empty());
  send(201, kOne);
  const auto all = told();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].expected, roce::Psn(202));
  EXPECT_EQ(all[0].count, 0u);
}

TEST_F(PassingTargetTest, PassesOnWhatItHadKeptForAnotherOwnerWhenTheFirstHasAnswered) {
  hear();
  send(200, kOne);
  send(202, kTwo);
  send(203, kOne);
  send(201, kOne);
  EXPECT_THAT(owners.psns(), ElementsAre(200u, 201u));
  accept(201, 2);
  EXPECT_THAT(owners.psns(), ElementsAre(200u, 201u, 202u));
  expect_answer(e, roce::ack_syndrome(), 201);
  accept(202, 3, 2);
  EXPECT_THAT(owners.psns(), ElementsAre(200u, 201u, 202u, 203u));
  expect_answer(e, roce::ack_syndrome(), 202);
}

TEST_F(PassingTargetTest, ExecutesWhatItHadKeptForItselfWhenTheFirstHasAnswered) {
  SharedTest::post(*local, 1);
  hear();
  send(200, kOne);
  send(202, local->number());
  send(201, kOne);
  EXPECT_TRUE(cq->empty());
  accept(201, 2);
  EXPECT_EQ(e.completion(*cq).wr_id, 1u);
  expect_answer(e, roce::ack_syndrome(), 202);
}

TEST_F(PassingTargetTest, WhatItHadKeptComesAfterWhatWasTakenBack) {
  hear();
  send(200, kOne);
  send(201, kOne);
  send(203, kOne);
  answer(roce::rnr_syndrome(12), 200);
  expect_answer(e, roce::rnr_syndrome(12), 200);
  for (uint32_t psn = 200; psn < 203; ++psn) send(psn, kOne);
  EXPECT_THAT(owners.psns(), ElementsAre(200u, 201u, 200u, 201u, 202u, 203u));
}

// ---- full links to owners

TEST_F(PassingTargetTest, AsksToWaitWhenNothingCanBePassedOn) {
  owners.full = true;
  send(200, kOne);
  expect_answer(e, roce::rnr_syndrome(12), 200);
  owners.full = false;
  send(200, kOne);
  accept(200);
  expect_answer(e, roce::ack_syndrome(), 200);
}

TEST_F(PassingTargetTest, AsksAgainForWhatThereWasNoRoomFor) {
  send(200, kOne);
  owners.full = true;
  send(201, kOne);
  owners.full = false;
  expect_no_answer();
  accept(200);
  expect_answer(e, roce::ack_syndrome(), 200);
  EXPECT_THAT(owners.psns(), ElementsAre(200u, 201u));
}

TEST_F(PassingTargetTest, PassesOnWhatThereWasNoRoomForOnlyOnce) {
  hear();
  send(200, kOne);
  owners.full = true;
  send(201, kOne);
  send(203, kOne);
  owners.full = false;
  send(201, kOne);
  send(202, kOne);
  EXPECT_THAT(owners.psns(), ElementsAre(200u, 201u, 202u, 203u));
  EXPECT_EQ(e.qp->next_receive_psn(), roce::Psn(204));
}

// ---- an owner that does not answer

// The owner may not get a processor. The requester sees the target as one adapter, which must not fall
// silent.
TEST_F(PassingTargetTest, AsksForPatienceWithAnOwnerThatIsSilent) {
  lose_nothing();
  send(200, kOne);
  send(201, kOne);
  accept(200);
  e.transmitted();
  send(201, kOne);
  expect_nothing_sent();
  e.now += std::chrono::milliseconds(150);
  send(201, kOne);
  expect_answer(e, roce::rnr_syndrome(31), 201);
  send(202, kOne);
  EXPECT_THAT(owners.psns(), ElementsAre(200u, 201u, 202u)) << "it has come, and is not executed twice";
  accept(202, 3);
  expect_answer(e, roce::ack_syndrome(), 202);
}

TEST_F(PassingTargetTest, AsksForPatienceForSomeSecondsAtMost) {
  lose_nothing();
  send(200, kOne);
  const TimePoint began = e.now;
  while (e.now - began < std::chrono::seconds(10)) {
    send(200, kOne);
    const bool asked = !e.transmitted().empty();
    const Duration passed = e.now - began;
    EXPECT_EQ(asked, passed >= std::chrono::milliseconds(100) && passed < std::chrono::seconds(4));
    e.now += std::chrono::milliseconds(50);
  }
}

// The requester requests no acknowledgement at first, because more packets follow; its repetition does.
TEST_F(PassingTargetTest, AcknowledgesToOneThatAsksWhenItRepeats) {
  lose_nothing();
  send(200, kOne, Op::kSendOnly, false);
  send(201, kOne, Op::kSendOnly, false);
  send(200, kOne, Op::kSendOnly, true);
  expect_nothing_sent();
  accept(201, 2);
  expect_answer(e, roce::ack_syndrome(), 201);
}

// ---- READs: the owner responds, and repeats

TEST_F(PassingTargetTest, CountsThePacketsOfAReadsResponse) {
  read(200, kOne, 1000);
  EXPECT_EQ(e.qp->next_receive_psn(), roce::Psn(204));
  send(204, kOne);
  accept(201, 1);
  accept(203, 1);
  expect_nothing_sent();
  accept(204, 2);
  expect_answer(e, roce::ack_syndrome(), 204);
}

TEST_F(PassingTargetTest, LetsTheOwnerRepeatItsResponse) {
  read(200, kOne, 1000);
  read(200, kOne, 1000);
  EXPECT_EQ(owners.passed.size(), 1u) << "the response is still to come";
  accept(203);
  read(200, kOne, 1000);
  ASSERT_EQ(owners.passed.size(), 2u);
  EXPECT_TRUE(owners.passed[1].repeated);
  EXPECT_EQ(e.qp->next_receive_psn(), roce::Psn(204));
  expect_nothing_sent();
}

// ---- answers that must be ignored

TEST_F(PassingTargetTest, PassesOverAnswersToWhatWasNotAsked) {
  const auto untouched = [&] {
    EXPECT_EQ(e.qp->state(), IBV_QPS_RTR);
    EXPECT_EQ(e.qp->next_receive_psn(), roce::Psn(202));
    expect_nothing_sent();
  };
  accept(199);
  send(200, kOne);
  send(201, kOne);
  accept(199);
  accept(202);
  accept(200, 1, 2);  // from the wrong owner
  answer(roce::rnr_syndrome(3), 202);
  answer(roce::rnr_syndrome(3), 199);
  answer(roce::nak_syndrome(NakCode::kRemoteAccess), 203);
  answer(0x40, 200);  // a reserved syndrome
  ++owners.last_run;
  accept(200);
  untouched();
}

TEST_F(PassingTargetTest, ForgetsWhatIsUnansweredWithReset) {
  send(200, kOne);
  e.qp->enter(IBV_QPS_RESET);
  EXPECT_EQ(owners.ended, 1);
  accept(200);
  e.bring_up(IBV_QPS_RTR);
  EXPECT_EQ(e.qp->next_receive_psn(), roce::Psn(200));
  send(200, kOne);
  EXPECT_EQ(owners.passed.size(), 2u);
  expect_nothing_sent();
}

TEST_F(PassingTargetTest, AcknowledgesInErrorWhatWasAnswered) {
  send(200, kOne);
  send(201, kOne);
  accept(200);
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_EQ(owners.ended, 1);
  expect_answer(e, roce::ack_syndrome(), 200);
}

}  // namespace
}  // namespace verbena::transport
