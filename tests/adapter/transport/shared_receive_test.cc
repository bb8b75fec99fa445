// SPDX-License-Identifier: Apache-2.0
// QPs that receive from a shared queue: RC, UC and UD.
#include "adapter/transport/support/shared_test.h"
#include "adapter/transport/uc.h"
#include "adapter/transport/ud.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class SharedReceive : public SharedTest {
 protected:
  EndpointOptions with_queue() { return {.recv_requests = 0, .keys = &memory.keys(), .srq = queue.get()}; }
  template <class Qp>
  void send(Endpoint<Qp>& e, roce::Service service, Op operation, uint32_t psn, ConstBytes payload) {
    EXPECT_EQ(e.receive(request(service, operation, psn, payload), payload), Verdict::kAccepted);
  }
  void send(Endpoint<RcQueuePair>& e, Op operation, uint32_t psn, ConstBytes payload) {
    send(e, roce::Service::kRc, operation, psn, payload);
  }
  template <class Qp>
  static void expect_received(Endpoint<Qp>& e, uint64_t wr_id, uint32_t bytes) {
    const ibv_wc wc = e.received();
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, bytes);
    EXPECT_EQ(wc.qp_num, e.qp->config().qpn.value());
  }

  std::unique_ptr<queues::SharedReceiveQueue> queue = make_queue();
};

TEST_F(SharedReceive, ServesItsQpsInTheOrderInWhichMessagesBegin) {
  Endpoint<RcQueuePair> a(with_queue());
  Endpoint<RcQueuePair> b(with_queue());
  a.bring_up();
  b.bring_up();
  for (uint64_t id = 1; id <= 4; ++id) post(*queue, id);
  send(a, Op::kSendOnly, 200, data(10));
  send(b, Op::kSendOnly, 200, data(20));
  send(b, Op::kSendOnly, 201, data(30));
  send(a, Op::kSendOnly, 201, data(40));
  expect_received(a, 1, 10);
  expect_received(a, 4, 40);
  expect_received(b, 2, 20);
  expect_received(b, 3, 30);
}

TEST_F(SharedReceive, HoldsARequestWhileOthersTakeTheNext) {
  Endpoint<RcQueuePair> a(with_queue());
  Endpoint<RcQueuePair> b(with_queue());
  a.bring_up();
  b.bring_up();
  for (uint64_t id = 1; id <= 3; ++id) post(*queue, id);
  send(a, Op::kSendFirst, 200, data(256));
  send(b, Op::kSendFirst, 200, data(256, 1000));
  send(a, Op::kSendMiddle, 201, data(256, 256));
  send(b, Op::kSendLast, 201, data(5, 1256));
  send(a, Op::kSendLast, 202, data(7, 512));
  expect_received(b, 2, 261);
  expect_received(a, 1, 519);
  EXPECT_TRUE(inbox_holds(1, data(519)));
  EXPECT_TRUE(inbox_holds(2, data(261, 1000)));
  send(b, Op::kSendOnly, 202, data(1));
  expect_received(b, 3, 1);
}

TEST_F(SharedReceive, AsksToWaitWhenTheQueueIsEmpty) {
  Endpoint<RcQueuePair> e(with_queue());
  e.bring_up();
  send(e, Op::kSendOnly, 200, data(1));
  expect_rnr_nak(e, 200);
  post(*queue, 1);
  send(e, Op::kSendOnly, 200, data(1));
  expect_received(e, 1, 1);
  expect_answer(e, roce::ack_syndrome(), 200);
}

TEST_F(SharedReceive, UsesTheQueuesProtectionDomainForTheRequestAndTheQpsForThePeersKeys) {
  constexpr memory::PdId kQueuesPd = kTestPd + 5;
  queue = make_queue(16, kQueuesPd);
  Endpoint<RcQueuePair> e(with_queue());
  e.bring_up();
  Buffer& inside = memory.add(100, IBV_ACCESS_LOCAL_WRITE, kQueuesPd);
  post(*queue, 1, inside.sge());
  send(e, Op::kSendOnly, 200, data(50));
  expect_received(e, 1, 50);
  EXPECT_TRUE(std::ranges::equal(inside.bytes(0, 50), data(50)));

  roce::Headers headers = request(roce::Service::kRc, Op::kWriteOnly, 201, data(8));
  headers.address = target.address();
  headers.rkey = target.key();
  headers.dma_length = 8;
  e.receive(headers, data(8));
  EXPECT_TRUE(std::ranges::equal(target.bytes(0, 8), data(8)));

  post(*queue, 2);  // memory of the QP's protection domain, which the shared queue's requests may not use
  send(e, Op::kSendOnly, 202, data(50));
  const ibv_wc wc = e.received();
  EXPECT_EQ(wc.wr_id, 2u);
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
}

TEST_F(SharedReceive, FlushesTheRequestItHoldsAndLeavesTheOthers) {
  Endpoint<RcQueuePair> a(with_queue());
  Endpoint<RcQueuePair> b(with_queue());
  a.bring_up();
  b.bring_up();
  post(*queue, 1);
  post(*queue, 2);
  send(a, Op::kSendFirst, 200, data(256));
  a.qp->enter(IBV_QPS_ERR);
  const ibv_wc wc = a.received();
  EXPECT_EQ(wc.wr_id, 1u);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(a.recv_cq->empty());
  EXPECT_THAT(a.log.events, ElementsAre(IBV_EVENT_QP_LAST_WQE_REACHED));
  send(b, Op::kSendOnly, 200, data(3));
  expect_received(b, 2, 3);
  EXPECT_THAT(b.log.events, IsEmpty());
}

TEST_F(SharedReceive, TellsOfItsLastRequestOnceHowEverItGotThere) {
  Endpoint<RcQueuePair> e(with_queue());
  e.bring_up();
  e.qp->enter(IBV_QPS_ERR);
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_QP_LAST_WQE_REACHED));
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  e.log.events.clear();
  send(e, Op::kSendMiddle, 200, data(256));  // an invalid request
  EXPECT_THAT(e.log.events,
              testing::UnorderedElementsAre(IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR));
}

TEST_F(SharedReceive, SaysNothingOfALastRequestWithoutASharedQueue) {
  Endpoint<RcQueuePair> e;
  e.bring_up();
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_THAT(e.log.events, IsEmpty());
}

TEST_F(SharedReceive, FailsARequestThatIsTooShort) {
  Endpoint<RcQueuePair> e(with_queue());
  e.bring_up();
  post(*queue, 1, 300);
  send(e, Op::kSendFirst, 200, data(256));
  send(e, Op::kSendLast, 201, data(100));
  const ibv_wc wc = e.received();
  EXPECT_EQ(wc.wr_id, 1u);
  EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_TRUE(e.recv_cq->empty()) << "it is not flushed a second time";
}

TEST_F(SharedReceive, TakesOneForAWriteWithImmediateEvenWhenTheWriteIsRefused) {
  Endpoint<RcQueuePair> e(with_queue());
  e.bring_up();
  post(*queue, 1);
  Buffer& fleeting = memory.add(300);
  roce::Headers headers = request(roce::Service::kRc, Op::kWriteFirst, 200, data(256));
  headers.address = fleeting.address();
  headers.rkey = fleeting.key();
  headers.dma_length = 300;
  e.receive(headers, data(256));
  memory.deregister(fleeting);
  send(e, Op::kWriteLastImmediate, 201, data(44, 256));
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  // Requests that the QP took from the queue come back to the application.
  const uint32_t left = queue->ring().posted() - queue->ring().consumed();
  ibv_wc wc;
  const int flushed = e.recv_cq->poll(1, &wc);
  EXPECT_EQ(left + static_cast<uint32_t>(flushed), 1u);
}

TEST_F(SharedReceive, WaitsInAReadOrAtomicForNothing) {
  Endpoint<RcQueuePair> e(with_queue());
  e.bring_up();
  roce::Headers headers = request(roce::Service::kRc, Op::kReadRequest, 200, {});
  headers.address = target.address();
  headers.rkey = target.key();
  headers.dma_length = 8;
  e.receive(headers);
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].operation(), Op::kReadResponseOnly);
}

// ---- the SRQ limit

TEST_F(SharedReceive, TellsOnceThatFewAreLeft) {
  Endpoint<RcQueuePair> e(with_queue());
  e.bring_up();
  for (uint64_t id = 1; id <= 5; ++id) post(*queue, id);
  queue->arm(4);
  send(e, Op::kSendOnly, 200, data(1));
  EXPECT_EQ(limit.events, 0) << "four are left";
  send(e, Op::kSendOnly, 201, data(1));
  EXPECT_EQ(limit.events, 1);
  send(e, Op::kSendOnly, 202, data(1));
  EXPECT_EQ(limit.events, 1);
  EXPECT_EQ(queue->limit(), 0u);
}

TEST_F(SharedReceive, CountsARequestAsTakenWhenItsMessageBegins) {
  Endpoint<RcQueuePair> e(with_queue());
  e.bring_up();
  post(*queue, 1);
  queue->arm(1);
  send(e, Op::kSendFirst, 200, data(256));
  EXPECT_EQ(limit.events, 1);
}

// ---- UC

TEST_F(SharedReceive, OfUcKeepsTheRequestOfALostMessageForTheNext) {
  Endpoint<UcQueuePair> e(with_queue());
  e.bring_up();
  post(*queue, 1);
  post(*queue, 2);
  send(e, roce::Service::kUc, Op::kSendFirst, 200, data(256));
  send(e, roce::Service::kUc, Op::kSendOnly, 202, data(9));
  expect_received(e, 1, 9);
  EXPECT_EQ(queue->ring().posted() - queue->ring().consumed(), 1u);
}

TEST_F(SharedReceive, OfUcDropsWithoutARequest) {
  Endpoint<UcQueuePair> e(with_queue());
  e.bring_up();
  send(e, roce::Service::kUc, Op::kSendOnly, 200, data(9));
  EXPECT_EQ(e.counter(kDroppedDatagrams), 1u);
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
}

TEST_F(SharedReceive, OfUcFlushesWhatItHeldAndTellsOfIt) {
  Endpoint<UcQueuePair> e(with_queue());
  e.bring_up();
  post(*queue, 1);
  send(e, roce::Service::kUc, Op::kSendFirst, 200, data(256));
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_EQ(e.received().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_QP_LAST_WQE_REACHED));
}

// ---- UD

TEST_F(SharedReceive, OfUdTakesDatagramsForSeveralQps) {
  Endpoint<UdQueuePair> a(with_queue());
  Endpoint<UdQueuePair> b(with_queue());
  for (auto* e : {&a, &b}) {
    e->attributes().qkey = 0x11;
    e->bring_up();
  }
  post(*queue, 1);
  post(*queue, 2);
  const auto datagram = [&](Endpoint<UdQueuePair>& e, uint32_t psn, uint32_t bytes) {
    roce::Headers headers = request(roce::Service::kUd, Op::kSendOnly, psn, data(bytes));
    headers.qkey = 0x11;
    headers.source = roce::Qpn(0x33);
    e.receive(headers, data(bytes));
  };
  datagram(b, 1, 20);
  datagram(a, 1, 30);
  datagram(a, 2, 40);  // the queue is empty: dropped
  expect_received(b, 1, kGrhBytes + 20);
  expect_received(a, 2, kGrhBytes + 30);
  EXPECT_TRUE(a.recv_cq->empty());
  EXPECT_TRUE(std::ranges::equal(inbox.bytes(4096 + kGrhBytes, 20), data(20)));
}

TEST_F(SharedReceive, OfUdKeepsARequestThatIsTooShortForALaterDatagram) {
  Endpoint<UdQueuePair> e(with_queue());
  e.attributes().qkey = 0x11;
  e.bring_up();
  post(*queue, 1, 60);
  roce::Headers headers = request(roce::Service::kUd, Op::kSendOnly, 1, data(40));
  headers.qkey = 0x11;
  e.receive(headers, data(40));
  EXPECT_TRUE(e.recv_cq->empty());
  headers.pad = 0;
  e.receive(headers, data(20));
  expect_received(e, 1, kGrhBytes + 20);
}

}  // namespace
}  // namespace verbena::transport
