// SPDX-License-Identifier: Apache-2.0
// The stand-in of an XRC target in the process that has the shared receive queue.
#include "adapter/transport/support/queue_owner.h"
#include "adapter/transport/support/shared_test.h"

namespace verbena::transport {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class DelegateTest : public SharedTest {
 protected:
  void SetUp() override {
    SharedTest::SetUp();
    target.attributes().max_dest_rd_atomic = 4;
  }

  roce::Headers packet(Op operation, uint32_t psn, ConstBytes payload = {}) const {
    roce::Headers headers = request(roce::Service::kXrc, operation, psn, payload);
    headers.xrc_srq = owner.number();
    return headers;
  }
  void pass(const roce::Headers& headers, ConstBytes payload, uint32_t run, bool repeated = false) {
    const roce::Packet whole{headers, payload};
    owner.queue({*target.qp, whole, run, 40, repeated});
    owner.take_next();
    owner.transmit();
  }
  void send(Op operation, uint32_t psn, ConstBytes payload, uint32_t run = 1) {
    pass(packet(operation, psn, payload), payload, run);
  }
  void access(Op operation, uint32_t psn, uint32_t bytes, ConstBytes payload = {}, bool repeated = false) {
    roce::Headers headers = packet(operation, psn, payload);
    headers.address = open.address();
    headers.rkey = open.key();
    headers.dma_length = bytes;
    headers.swap_add = 3;
    pass(headers, payload, 1, repeated);
  }
  void expect_answer(uint8_t syndrome, uint32_t psn, uint32_t msn) {
    ASSERT_FALSE(owner.answers.empty());
    const OwnerAnswer answer = owner.answers.front();
    owner.answers.pop_front();
    EXPECT_EQ(answer.syndrome, syndrome);
    EXPECT_EQ(answer.psn, roce::Psn(psn));
    EXPECT_EQ(answer.msn, msn);
  }
  void post(uint64_t wr_id, uint32_t length = 4096) { owner.post(wr_id, mailbox.sge(wr_id * 4096, length)); }
  ibv_wc completion() {
    ibv_wc wc{};
    EXPECT_EQ(owner.cq->poll(1, &wc), 1) << "no completion";
    return wc;
  }

  Endpoint<XrcTarget> target{{.recv_requests = 0, .qpn = 0x77}};
  QueueOwner owner{3};
  Buffer& mailbox = owner.memory.add(16 * 4096, IBV_ACCESS_LOCAL_WRITE, QueueOwner::kPd);
  Buffer& open = owner.memory.add(4096, kAllAccess, QueueOwner::kPd);
};

TEST_F(DelegateTest, DeliversAsTheTargetWouldAndAnswersIt) {
  post(1);
  send(Op::kSendFirst, 500, data(256));
  expect_answer(roce::ack_syndrome(), 500, 40);
  send(Op::kSendLast, 501, data(10, 256));
  expect_answer(roce::ack_syndrome(), 501, 41);
  const ibv_wc wc = completion();
  EXPECT_EQ(wc.wr_id, 1u);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, 266u);
  EXPECT_EQ(wc.qp_num, 0x77u) << "the target's";
  EXPECT_EQ(wc.src_qp, 0x22u) << "the requester's";
  EXPECT_TRUE(std::ranges::equal(mailbox.bytes(4096, 266), data(266)));
  EXPECT_THAT(owner.wire.packets, IsEmpty()) << "the target acknowledges";
}

// The target forwards packets in order, so an early packet is the target's mistake.
TEST_F(DelegateTest, KeepsNothing) {
  post(1);
  post(2);
  send(Op::kSendOnly, 500, data(1));
  send(Op::kSendOnly, 502, data(2));
  send(Op::kSendOnly, 501, data(3));
  EXPECT_EQ(completion().byte_len, 1u);
  EXPECT_EQ(completion().byte_len, 3u);
  EXPECT_TRUE(owner.cq->empty());
  EXPECT_THAT(owner.wire.packets, IsEmpty());
}

TEST_F(DelegateTest, TakesNothingAfterItAskedToWaitUntilTheNextRun) {
  send(Op::kSendOnly, 500, data(1));
  expect_answer(roce::rnr_syndrome(12), 500, 40);
  post(1);
  send(Op::kSendOnly, 501, data(2));
  EXPECT_THAT(owner.answers, IsEmpty());
  send(Op::kSendOnly, 500, data(1), 2);
  expect_answer(roce::ack_syndrome(), 500, 41);
  EXPECT_EQ(completion().byte_len, 1u);
}

TEST_F(DelegateTest, FollowsTheTargetToWhereItHasGoneOnMeanwhile) {
  post(1);
  post(2);
  send(Op::kSendOnly, 500, data(1), 1);
  expect_answer(roce::ack_syndrome(), 500, 41);
  send(Op::kSendOnly, 700, data(2), 2);  // other processes have taken the packets in between
  expect_answer(roce::ack_syndrome(), 700, 41);
  EXPECT_EQ(completion().byte_len, 1u);
  EXPECT_EQ(completion().byte_len, 2u);
}

TEST_F(DelegateTest, AMessageGoesOnInAnotherRun) {
  post(1);
  send(Op::kSendFirst, 500, data(256), 1);
  send(Op::kSendLast, 501, data(4, 256), 2);
  EXPECT_EQ(completion().byte_len, 260u);
}

TEST_F(DelegateTest, AnswersReadsToTheRequesterAndTheTarget) {
  open.fill(3);
  access(Op::kReadRequest, 500, 600);
  ASSERT_THAT(owner.wire.packets, SizeIs(3));
  EXPECT_EQ(owner.wire.packets[0].operation(), Op::kReadResponseFirst);
  EXPECT_EQ(owner.wire.packets[0].headers.destination, roce::Qpn(0x22));
  EXPECT_EQ(owner.wire.packets[0].path, target.attributes().path);
  EXPECT_TRUE(std::ranges::equal(owner.wire.packets[2].payload, open.bytes(512, 88)));
  expect_answer(roce::ack_syndrome(), 502, 41);
}

TEST_F(DelegateTest, RepeatsWhatItHasAnsweredBefore) {
  open.word(0) = 100;
  access(Op::kFetchAdd, 500, 8);
  access(Op::kFetchAdd, 501, 8);
  owner.wire.packets.clear();
  access(Op::kFetchAdd, 500, 8, {}, true);
  ASSERT_THAT(owner.wire.packets, SizeIs(1));
  EXPECT_EQ(owner.wire.packets[0].headers.atomic_original, 100u);
  EXPECT_EQ(open.word(0), 106u) << "not added again";
}

TEST_F(DelegateTest, AnswersForAllResponsesWhenTheLastIsARepeatedOne) {
  roce::Headers headers = packet(Op::kReadRequest, 500);
  headers.address = open.address();
  headers.rkey = open.key();
  headers.dma_length = 600;
  const roce::Packet whole{headers, {}};
  owner.queue({*target.qp, whole, 1, 40, false});
  owner.take_next();
  owner.transmit(2);
  expect_answer(roce::ack_syndrome(), 501, 41);
  headers.dma_length = 256;
  const roce::Packet part{headers, {}};
  owner.queue({*target.qp, part, 1, 40, true});
  owner.take_next();
  owner.transmit();
  expect_answer(roce::ack_syndrome(), 502, 41);
  EXPECT_THAT(owner.wire.packets, SizeIs(4));
}

// The requester has got the response, and its memory was deregistered since.
TEST_F(DelegateTest, AnswersForWhatFollowsAResponseThatItCannotRepeat) {
  Buffer& gone = owner.memory.add(4096, kAllAccess, QueueOwner::kPd);
  roce::Headers headers = packet(Op::kReadRequest, 500);
  headers.address = gone.address();
  headers.rkey = gone.key();
  headers.dma_length = 8;
  pass(headers, {}, 1);
  expect_answer(roce::ack_syndrome(), 500, 41);
  const roce::Packet whole{headers, {}};
  owner.queue({*target.qp, whole, 1, 40, true});
  owner.take_next();
  post(1);
  const auto payload = data(10);
  const roce::Headers next = packet(Op::kSendOnly, 501, payload);
  const roce::Packet following{next, payload};
  owner.queue({*target.qp, following, 1, 41, false});
  owner.take_next();
  owner.memory.deregister(gone);
  owner.transmit();
  ASSERT_EQ(owner.answers.size(), 2u);
  owner.answers.pop_front();
  expect_answer(roce::ack_syndrome(), 501, 42);
}

TEST_F(DelegateTest, AnswersForAResponseWhenTheWireHasTakenIt) {
  owner.wire.room = 0;
  access(Op::kReadRequest, 500, 8);
  EXPECT_THAT(owner.answers, IsEmpty());
  owner.wire.room = -1;
  owner.transmit();
  expect_answer(roce::ack_syndrome(), 500, 41);
}

TEST_F(DelegateTest, RefusesAndSaysWhatItIsToTheTarget) {
  roce::Headers headers = packet(Op::kWriteOnly, 500, data(16));
  headers.address = open.address();
  headers.rkey = open.key() ^ 1;
  headers.dma_length = 16;
  pass(headers, data(16), 1);
  ASSERT_THAT(owner.answers, SizeIs(1));
  EXPECT_EQ(owner.answers[0].event, IBV_EVENT_QP_ACCESS_ERR);
  expect_answer(roce::nak_syndrome(NakCode::kRemoteAccess), 500, 40);
  send(Op::kSendOnly, 500, data(1), 2);
  EXPECT_THAT(owner.answers, IsEmpty()) << "the target has failed";
}

TEST_F(DelegateTest, AReceiveThatIsTooShortIsNoEventOfTheTargets) {
  post(1, 4);
  send(Op::kSendOnly, 500, data(10));
  EXPECT_EQ(completion().status, IBV_WC_LOC_LEN_ERR);
  ASSERT_THAT(owner.answers, SizeIs(1));
  EXPECT_EQ(owner.answers[0].event, std::nullopt);
  expect_answer(roce::nak_syndrome(NakCode::kInvalidRequest), 500, 40);
}

TEST_F(DelegateTest, RefusesQueuesThatThereAreNot) {
  roce::Headers headers = packet(Op::kSendOnly, 500, data(1));
  headers.xrc_srq ^= 1;
  pass(headers, data(1), 1);
  expect_answer(roce::nak_syndrome(NakCode::kInvalidRequest), 500, 40);
}

TEST_F(DelegateTest, ACompletionQueueInErrorFailsTheTarget) {
  for (uint64_t i = 0; i <= owner.cq->capacity(); ++i) owner.cq->push(ibv_wc{}, false);
  ASSERT_TRUE(owner.cq->in_error());
  post(1);
  send(Op::kSendOnly, 500, data(1));
  ASSERT_THAT(owner.answers, testing::Not(IsEmpty()));
  EXPECT_EQ(roce::aeth_kind(owner.answers.back().syndrome), roce::AethKind::kNak);
  EXPECT_EQ(owner.answers.back().event, IBV_EVENT_QP_FATAL);
}

TEST_F(DelegateTest, FlushesTheReceiveOfAMessageWhoseTargetIsGone) {
  post(1);
  send(Op::kSendFirst, 500, data(256));
  owner.end_target();
  const ibv_wc wc = completion();
  EXPECT_EQ(wc.wr_id, 1u);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc.qp_num, 0x77u);
}

}  // namespace
}  // namespace verbena::transport
