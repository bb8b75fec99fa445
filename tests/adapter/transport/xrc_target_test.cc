// SPDX-License-Identifier: Apache-2.0
// XRC target QPs: each request names the shared receive queue that it is for (IBTA volume 1, annex A14).
#include "adapter/transport/support/shared_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class XrcTargetTest : public SharedTest {
 protected:
  static constexpr uint64_t kDomain = 5;
  static constexpr memory::PdId kQueuePd = 21;  // the queue's own: an XRC target QP has none

  // A shared receive queue with a CQ of its own, known by its number.
  struct Queue {
    std::unique_ptr<queues::CompletionQueue> cq;
    std::unique_ptr<queues::SharedReceiveQueue> srq;
    uint32_t number() const { return srq->number(); }
  };

  void SetUp() override {
    SharedTest::SetUp();
    e.bring_up(IBV_QPS_RTR);
  }

  Queue make(memory::PdId pd = kQueuePd, uint64_t domain = kDomain) {
    Queue made;
    made.cq = *queues::CompletionQueue::create(64, &cq_log);
    made.srq = *queues::SharedReceiveQueue::create({.requests = 16,
                                                    .sges = 4,
                                                    .pd = pd,
                                                    .listener = &limit,
                                                    .cq = made.cq.get(),
                                                    .number = *table.reserve(),
                                                    .xrc_domain = domain});
    table.add(*made.srq);
    return made;
  }
  void destroy(Queue& queue) {
    table.remove(queue.number());
    e.qp->receives().forget(*queue.srq);
    queue.srq.reset();
  }

  static roce::Headers packet(Op operation, uint32_t psn, uint32_t number, ConstBytes payload = {}) {
    roce::Headers headers = request(roce::Service::kXrc, operation, psn, payload);
    headers.xrc_srq = number;
    return headers;
  }
  void send(Op operation, uint32_t psn, const Queue& queue, ConstBytes payload) {
    EXPECT_EQ(e.receive(packet(operation, psn, queue.number(), payload), payload), Verdict::kAccepted);
  }
  void access(Op operation, uint32_t psn, const Queue& queue, const Buffer& to, uint32_t length,
              ConstBytes payload = {}) {
    roce::Headers headers = packet(operation, psn, queue.number(), payload);
    headers.address = to.address();
    headers.rkey = to.key();
    headers.dma_length = length;
    headers.swap_add = 3;
    e.receive(headers, payload);
  }
  void expect_received(Queue& queue, uint64_t wr_id, uint32_t bytes) {
    const ibv_wc wc = e.completion(*queue.cq);
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, bytes);
    EXPECT_EQ(wc.qp_num, 0x11u);
  }
  void post(Queue& queue, uint64_t wr_id, uint32_t length = 4096) {
    SharedTest::post(*queue.srq, wr_id, mailbox.sge(wr_id * 4096, length));
  }
  bool mailbox_holds(uint64_t wr_id, ConstBytes wanted) {
    return std::ranges::equal(mailbox.bytes(wr_id * 4096, wanted.size()), wanted);
  }
  void expect_refusal(uint32_t psn, NakCode code) {
    EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
    expect_answer(e, roce::nak_syndrome(code), psn);
  }
  void reset() {
    e.qp->enter(IBV_QPS_RESET);
    e.bring_up(IBV_QPS_RTR);
  }

  queues::SharedReceiveQueueTable table{0};
  EventLog cq_log;
  Buffer& mailbox = memory.add(16 * 4096, IBV_ACCESS_LOCAL_WRITE, kQueuePd);
  Buffer& open = memory.add(4096, kAllAccess, kQueuePd);
  Endpoint<XrcTarget> e{{.recv_requests = 0, .keys = &memory.keys(), .srqs = &table, .xrc_domain = kDomain}};
};

TEST_F(XrcTargetTest, DeliversToTheQueueThatEachMessageNames) {
  Queue one = make();
  Queue two = make();
  post(one, 1);
  post(one, 2);
  post(two, 3);
  send(Op::kSendOnly, 200, two, data(10));
  send(Op::kSendOnly, 201, one, data(20, 100));
  send(Op::kSendFirst, 202, one, data(256));
  send(Op::kSendLast, 203, one, data(1, 256));
  expect_received(two, 3, 10);
  expect_received(one, 1, 20);
  expect_received(one, 2, 257);
  EXPECT_TRUE(mailbox_holds(3, data(10)));
  EXPECT_TRUE(mailbox_holds(1, data(20, 100)));
  EXPECT_TRUE(e.recv_cq->empty()) << "receives complete at the queue's CQ";
  expect_answer(e, roce::ack_syndrome(), 203);
}

TEST_F(XrcTargetTest, KeepsWhatComesBeforeItsTurn) {
  Queue queue = make();
  post(queue, 1);
  post(queue, 2);
  EXPECT_EQ(e.receive(heard_at(roce::Psn(200))), Verdict::kAccepted);
  send(Op::kSendOnly, 201, queue, data(20));
  const auto told = e.transmitted();
  ASSERT_EQ(told.size(), 1u) << "and no NAK";
  EXPECT_EQ(told[0].headers.opcode, roce::kSackOpcode);
  send(Op::kSendOnly, 200, queue, data(10));
  expect_received(queue, 1, 10);
  expect_received(queue, 2, 20);
  expect_answer(e, roce::ack_syndrome(), 201);
}

TEST_F(XrcTargetTest, AnswersInItsOwnServiceWithoutNamingAQueue) {
  Queue queue = make();
  post(queue, 1);
  send(Op::kSendOnly, 200, queue, data(1));
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].headers.service(), roce::Service::kXrc);
  EXPECT_FALSE(packets[0].headers.info().has(roce::kXrceth));
}

TEST_F(XrcTargetTest, RefusesAQueueThatThereIsNot) {
  e.receive(packet(Op::kSendOnly, 200, 0x1234, data(1)), data(1));
  expect_refusal(200, NakCode::kInvalidRequest);
  EXPECT_THAT(e.log.events, testing::Contains(IBV_EVENT_QP_REQ_ERR));
}

TEST_F(XrcTargetTest, RefusesAQueueOfAnotherDomain) {
  Queue foreign = make(kQueuePd, kDomain + 1);
  post(foreign, 1);
  send(Op::kSendOnly, 200, foreign, data(1));
  expect_refusal(200, NakCode::kInvalidRequest);
  EXPECT_TRUE(foreign.cq->empty());
  EXPECT_EQ(foreign.srq->ring().posted() - foreign.srq->ring().consumed(), 1u);
}

TEST_F(XrcTargetTest, RefusesAnotherQueueInTheMidstOfAMessage) {
  Queue one = make();
  Queue two = make();
  post(one, 1);
  post(two, 2);
  send(Op::kSendFirst, 200, one, data(256));
  send(Op::kSendLast, 201, two, data(1));
  expect_refusal(201, NakCode::kInvalidRequest);
  const ibv_wc wc = e.completion(*one.cq);
  EXPECT_EQ(wc.wr_id, 1u);
  EXPECT_EQ(wc.status, IBV_WC_REM_INV_REQ_ERR) << "what it held of the first queue comes back there";
  EXPECT_TRUE(two.cq->empty());
}

TEST_F(XrcTargetTest, AsksToWaitWhenTheQueueIsEmptyThoughOthersAreNot) {
  Queue empty = make();
  Queue full = make();
  post(full, 1);
  send(Op::kSendOnly, 200, empty, data(1));
  expect_rnr_nak(e, 200);
  post(empty, 2);
  send(Op::kSendOnly, 200, empty, data(1));
  expect_received(empty, 2, 1);
  EXPECT_TRUE(full.cq->empty());
}

TEST_F(XrcTargetTest, FailsWhenTheQueueIsDestroyedInTheMidstOfAMessage) {
  Queue queue = make();
  post(queue, 1);
  send(Op::kSendFirst, 200, queue, data(256));
  const uint32_t number = queue.number();
  destroy(queue);
  e.receive(packet(Op::kSendLast, 201, number, data(1)), data(1));
  expect_refusal(201, NakCode::kInvalidRequest);
  EXPECT_TRUE(queue.cq->empty());
}

TEST_F(XrcTargetTest, OutlivesAQueueThatIsDestroyedBetweenMessages) {
  Queue one = make();
  Queue two = make();
  post(one, 1);
  post(two, 2);
  send(Op::kSendOnly, 200, one, data(1));
  destroy(one);
  send(Op::kSendOnly, 201, two, data(2));
  expect_received(two, 2, 2);
}

TEST_F(XrcTargetTest, FlushesNothingOfADestroyedQueue) {
  Queue queue = make();
  post(queue, 1);
  send(Op::kSendFirst, 200, queue, data(256));
  destroy(queue);
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_FALSE(e.qp->has_urgent());
  EXPECT_TRUE(queue.cq->empty());
}

// ---- peers' keys are checked against the queue's protection domain

TEST_F(XrcTargetTest, WritesReadsAndCountsInTheQueuesProtectionDomain) {
  Queue queue = make();
  access(Op::kWriteOnly, 200, queue, open, 16, data(16));
  EXPECT_TRUE(std::ranges::equal(open.bytes(0, 16), data(16)));
  expect_answer(e, roce::ack_syndrome(), 200);

  access(Op::kReadRequest, 201, queue, open, 16);
  auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].operation(), Op::kReadResponseOnly);
  EXPECT_EQ(packets[0].headers.service(), roce::Service::kXrc);
  EXPECT_TRUE(std::ranges::equal(packets[0].payload, data(16)));

  open.word(0) = 100;
  access(Op::kFetchAdd, 202, queue, open, 8);
  packets = e.transmitted();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].headers.atomic_original, 100u);
  EXPECT_EQ(open.word(0), 103u);
}

TEST_F(XrcTargetTest, RefusesKeysOfAnotherProtectionDomain) {
  Queue queue = make();
  access(Op::kWriteOnly, 200, queue, target, 16, data(16));  // a key of kTestPd
  expect_refusal(200, NakCode::kRemoteAccess);
  EXPECT_EQ(target.bytes()[0], std::byte{0});
  reset();
  access(Op::kReadRequest, 200, queue, target, 16);
  expect_refusal(200, NakCode::kRemoteAccess);
  reset();
  access(Op::kFetchAdd, 200, queue, target, 8);
  expect_refusal(200, NakCode::kRemoteAccess);
}

TEST_F(XrcTargetTest, ChecksEachMessageAgainstTheQueueItNames) {
  Queue one = make(kQueuePd);
  Queue two = make(kTestPd);
  access(Op::kWriteOnly, 200, one, open, 16, data(16));
  access(Op::kWriteOnly, 201, two, target, 16, data(16));
  EXPECT_TRUE(std::ranges::equal(target.bytes(0, 16), data(16)));
  access(Op::kWriteOnly, 202, one, target, 16, data(16, 32));
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  EXPECT_TRUE(std::ranges::equal(target.bytes(0, 16), data(16)));
}

TEST_F(XrcTargetTest, TakesAReceiveOfTheQueueForAWriteWithImmediate) {
  Queue queue = make();
  post(queue, 1);
  access(Op::kWriteOnlyImmediate, 200, queue, open, 16, data(16));
  const ibv_wc wc = e.completion(*queue.cq);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.byte_len, 16u);
}

TEST_F(XrcTargetTest, RepeatsReadsAndAtomicsFromWhatItSaved) {
  Queue queue = make();
  Queue other = make(kTestPd);
  SharedTest::post(*other.srq, 1);
  open.word(0) = 100;
  access(Op::kFetchAdd, 200, queue, open, 8);
  access(Op::kReadRequest, 201, queue, open, 8);
  send(Op::kSendOnly, 202, other, data(1));
  e.transmitted();
  access(Op::kFetchAdd, 200, queue, open, 8);
  access(Op::kReadRequest, 201, queue, open, 8);
  const auto packets = answers(e);
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].headers.atomic_original, 100u);
  EXPECT_EQ(packets[1].operation(), Op::kReadResponseOnly) << "though the queue named last is another";
  EXPECT_EQ(open.word(0), 103u) << "not added twice";
}

// ---- packets for others

TEST_F(XrcTargetTest, IsDeafToAnswersAndToOtherServices) {
  EXPECT_EQ(e.receive(headers_of(roce::Service::kXrc, Op::kAcknowledge, 100)), Verdict::kWrongService);
  EXPECT_EQ(e.receive(rc_headers(Op::kSendOnly, 200), data(1)), Verdict::kWrongService);
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTR);
}

TEST_F(XrcTargetTest, TellsOnceThatItsPeerIsThere) {
  Queue queue = make();
  access(Op::kWriteOnly, 200, queue, open, 16, data(16));
  access(Op::kWriteOnly, 201, queue, open, 16, data(16));
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_COMM_EST));
}

TEST_F(XrcTargetTest, HasNothingToFlushOfItsOwn) {
  Queue queue = make();
  post(queue, 1);
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_TRUE(queue.cq->empty());
  EXPECT_TRUE(e.recv_cq->empty());
  EXPECT_TRUE(e.send_cq->empty());
}

// ---- two targets, one queue

TEST_F(XrcTargetTest, SharesAQueueWithOtherTargets) {
  Endpoint<XrcTarget> other(
      {.recv_requests = 0, .qpn = 0x12, .keys = &memory.keys(), .srqs = &table, .xrc_domain = kDomain});
  other.bring_up(IBV_QPS_RTR);
  Queue queue = make();
  post(queue, 1);
  post(queue, 2);
  send(Op::kSendFirst, 200, queue, data(256));
  other.receive(packet(Op::kSendOnly, 200, queue.number(), data(7)), data(7));
  send(Op::kSendLast, 201, queue, data(4, 256));
  ibv_wc wc = e.completion(*queue.cq);
  EXPECT_EQ(wc.wr_id, 2u);
  EXPECT_EQ(wc.qp_num, 0x12u);
  wc = e.completion(*queue.cq);
  EXPECT_EQ(wc.wr_id, 1u);
  EXPECT_EQ(wc.qp_num, 0x11u);
  EXPECT_EQ(wc.byte_len, 260u);
}

}  // namespace
}  // namespace verbena::transport
