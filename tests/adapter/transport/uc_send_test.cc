// SPDX-License-Identifier: Apache-2.0
// Sending on a UC QP: packets, completions and rate.
#include "adapter/transport/support/uc_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class UcSend : public UcTest {};

TEST_F(UcSend, CutsAMessageIntoPackets) {
  post(IBV_WR_SEND, 600);
  const auto packets = e.transmitted();
  EXPECT_THAT(operations(packets), ElementsAre(Op::kSendFirst, Op::kSendMiddle, Op::kSendLast));
  EXPECT_THAT(psns(packets), ElementsAre(100, 101, 102));
  for (const SentPacket& p : packets) {
    EXPECT_EQ(p.headers.service(), roce::Service::kUc);
    EXPECT_EQ(p.headers.destination, roce::Qpn(0x22));
    EXPECT_FALSE(p.asks()) << "there is nobody to answer";
  }
  EXPECT_TRUE(std::ranges::equal(packets[2].payload, outbox.bytes(512, 88)));
  expect_sent(1);
  EXPECT_EQ(e.qp->next_send_psn(), roce::Psn(103));
}

TEST_F(UcSend, KnowsItsFourOperations) {
  post(IBV_WR_SEND, 10);
  post(IBV_WR_SEND_WITH_IMM, 10, IBV_SEND_SOLICITED);
  post(IBV_WR_RDMA_WRITE, 300);
  post(IBV_WR_RDMA_WRITE_WITH_IMM, 0);
  const auto packets = e.transmitted();
  EXPECT_THAT(operations(packets), ElementsAre(Op::kSendOnly, Op::kSendOnlyImmediate, Op::kWriteFirst,
                                               Op::kWriteLast, Op::kWriteOnlyImmediate));
  EXPECT_EQ(packets[1].headers.immediate, 0x01020304u);
  EXPECT_TRUE(packets[1].headers.solicited);
  EXPECT_EQ(packets[2].headers.address, 0x10000u);
  EXPECT_EQ(packets[2].headers.rkey, 0xabcdu);
  EXPECT_EQ(packets[2].headers.dma_length, 300u);
  for (const auto opcode : {IBV_WC_SEND, IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE}) {
    EXPECT_EQ(e.sent().opcode, opcode);
  }
}

TEST_F(UcSend, CompletesWhenTheLastPacketHasLeft) {
  post(IBV_WR_SEND, 600);
  e.sink.room = 2;
  EXPECT_EQ(e.transmit(), TransmitResult::kBusy);
  expect_none_sent();
  EXPECT_TRUE(e.qp->has_urgent());
  e.sink.room = -1;
  EXPECT_EQ(e.transmit(), TransmitResult::kIdle);
  expect_sent(1);
  EXPECT_EQ(e.sink.packets.size(), 3u);
  EXPECT_FALSE(e.qp->has_outstanding());
}

TEST_F(UcSend, StopsAtItsBudgetAndGoesOn) {
  post(IBV_WR_SEND, 600);
  EXPECT_EQ(e.transmit(2), TransmitResult::kMore);
  EXPECT_EQ(e.transmit(2), TransmitResult::kIdle);
  EXPECT_EQ(e.sink.packets.size(), 3u);
}

TEST_F(UcSend, CompletesOnlyWhatAsksForIt) {
  Endpoint<UcQueuePair> quiet({.signal_all = false});
  quiet.bring_up();
  Buffer& buffer = quiet.memory.add(64, 0);
  ibv_sge sge = buffer.sge();
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.wr_id = 1;
  post_send(*quiet.qp, wr);
  wr.wr_id = 2;
  wr.send_flags = IBV_SEND_SIGNALED;
  post_send(*quiet.qp, wr);
  quiet.transmit();
  EXPECT_EQ(quiet.sent().wr_id, 2u);
  EXPECT_TRUE(quiet.send_cq->empty());
  EXPECT_TRUE(quiet.qp->send_queue().empty());
}

// ---- errors

TEST_F(UcSend, StopsSendingButReceivesOnAfterASendError) {
  post_receive();
  post_with_key(IBV_WR_SEND, 10, 0xdead);
  post(IBV_WR_SEND, 10);
  EXPECT_THAT(e.transmitted(), IsEmpty());
  EXPECT_EQ(e.qp->state(), IBV_QPS_SQE);
  expect_sent(1, IBV_WC_LOC_PROT_ERR);
  expect_sent(2, IBV_WC_WR_FLUSH_ERR);
  arrive(Op::kSendOnly, 200, data(10));
  expect_received(1, 10);

  // Requests posted in SQE are flushed, too (IBTA volume 1, 10.3.1.6). Back in RTS, the QP sends again.
  post(IBV_WR_SEND, 10);
  EXPECT_TRUE(e.qp->has_urgent());
  e.transmit();
  expect_sent(3, IBV_WC_WR_FLUSH_ERR);
  e.qp->enter(IBV_QPS_RTS);
  post(IBV_WR_SEND, 10);
  EXPECT_EQ(e.transmitted().size(), 1u);
  expect_sent(4);
}

TEST_F(UcSend, FailsInTheMidstOfAMessageWhoseMemoryGoesAway) {
  Buffer& fleeting = e.memory.add(600, 0);
  ibv_sge sge = fleeting.sge();
  ibv_send_wr wr{};
  wr.wr_id = 77;
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  post_send(*e.qp, wr);
  EXPECT_EQ(e.transmit(1), TransmitResult::kMore);
  e.memory.deregister(fleeting);
  e.transmit();
  EXPECT_EQ(e.sink.packets.size(), 1u);
  expect_sent(77, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(e.qp->state(), IBV_QPS_SQE);
  // The next message starts with a First packet and its own first byte.
  e.sink.packets.clear();
  e.qp->enter(IBV_QPS_RTS);
  post(IBV_WR_SEND, 300);
  const auto packets = e.transmitted();
  EXPECT_THAT(operations(packets), ElementsAre(Op::kSendFirst, Op::kSendLast));
  EXPECT_THAT(psns(packets), ElementsAre(101, 102));
}

TEST_F(UcSend, RefusesWhatTheServiceDoesNotHave) {
  for (const auto opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV}) {
    post(opcode, 8);
    EXPECT_THAT(e.transmitted(), IsEmpty());
    EXPECT_EQ(e.sent().status, IBV_WC_LOC_QP_OP_ERR);
    EXPECT_EQ(e.qp->state(), IBV_QPS_SQE);
    e.qp->enter(IBV_QPS_RTS);
  }
}

TEST_F(UcSend, FlushesEverythingInError) {
  post(IBV_WR_SEND, 600);
  post(IBV_WR_SEND, 1);
  e.transmit(1);
  e.qp->enter(IBV_QPS_ERR);
  expect_sent(1, IBV_WC_WR_FLUSH_ERR);
  expect_sent(2, IBV_WC_WR_FLUSH_ERR);
  expect_none_sent();
  EXPECT_FALSE(e.qp->has_urgent());
  EXPECT_EQ(e.qp->deadline(), kNever);
}

TEST_F(UcSend, ForgetsWithoutCompletionsWhenReset) {
  post(IBV_WR_SEND, 600);
  e.transmit(1);
  e.sink.packets.clear();
  e.qp->enter(IBV_QPS_RESET);
  expect_none_sent();
  e.bring_up();
  post(IBV_WR_SEND, 300);
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kSendFirst, Op::kSendLast));
}

// ---- draining

TEST_F(UcSend, DrainsTheMessageThatHasBegunAndNoOther) {
  post(IBV_WR_SEND, 600);
  post(IBV_WR_SEND, 1);
  e.transmit(1);
  e.attributes().notify_drained = true;
  e.qp->enter(IBV_QPS_SQD);
  EXPECT_THAT(e.log.events, IsEmpty());
  e.transmit();
  EXPECT_EQ(e.sink.packets.size(), 3u);
  expect_sent(1);
  expect_none_sent();
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_SQ_DRAINED));
  EXPECT_FALSE(e.qp->has_urgent());
  e.qp->enter(IBV_QPS_RTS);
  e.transmit();
  expect_sent(2);
}

TEST_F(UcSend, IsDrainedAtOnceBetweenMessages) {
  post(IBV_WR_SEND, 1);
  e.attributes().notify_drained = true;
  e.qp->enter(IBV_QPS_SQD);
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_SQ_DRAINED));
  EXPECT_THAT(e.transmitted(), IsEmpty());
}

TEST_F(UcSend, SaysNothingOfDrainingToWhoDidNotAsk) {
  e.qp->enter(IBV_QPS_SQD);
  EXPECT_THAT(e.log.events, IsEmpty());
}

TEST_F(UcSend, IsDrainedWhenTheMessageThatHadBegunFails) {
  Buffer& fleeting = e.memory.add(600, 0);
  ibv_sge sge = fleeting.sge();
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  post_send(*e.qp, wr);
  e.transmit(1);
  e.attributes().notify_drained = true;
  e.qp->enter(IBV_QPS_SQD);
  e.memory.deregister(fleeting);
  e.transmit();
  EXPECT_EQ(e.sent().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(e.qp->state(), IBV_QPS_SQE);
}

// ---- pacing, where no peer reports what the path carries

class UcPacing : public UcTest {
 protected:
  UcPacing() : UcTest({.repairs = false}) {}
  void SetUp() override {
    e.attributes().path_mtu = 4096;
    UcTest::SetUp();
  }
  // Advances time until all posted requests have been sent.
  void run_dry() {
    for (int round = 0; !e.qp->send_queue().empty(); ++round) {
      ASSERT_LT(round, 10'000);
      e.transmit();
      if (e.qp->deadline() != kNever) e.wait_for_timer();
    }
  }
};

TEST_F(UcPacing, SendsABurstAndThenWaits) {
  post(IBV_WR_SEND, 1 << 20);
  EXPECT_EQ(e.transmit(), TransmitResult::kPaced);
  const size_t burst = e.sink.packets.size();
  EXPECT_GE(burst * 4096, kSocketTraits.blind_burst_bytes - 2 * 4096);
  EXPECT_LE(burst * 4096, kSocketTraits.blind_burst_bytes + 4096);
  EXPECT_FALSE(e.qp->has_urgent()) << "until its time has come";
  EXPECT_GT(e.qp->deadline(), e.now);
  EXPECT_EQ(e.transmit(), TransmitResult::kIdle) << "asking does not help";
  e.wait_for_timer();
  EXPECT_TRUE(e.qp->has_urgent());
  EXPECT_EQ(e.transmit(), TransmitResult::kPaced);
  EXPECT_GT(e.sink.packets.size(), burst);
}

TEST_F(UcPacing, KeepsToItsRateInTheLongRun) {
  const TimePoint began = e.now;
  uint64_t bytes = 0;
  for (int i = 0; i < 16; ++i) {
    post(IBV_WR_SEND, 1 << 20);
    run_dry();
    bytes += 1 << 20;
    e.sink.packets.clear();
  }
  const auto took =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(e.now - began).count());
  const uint64_t sustained = bytes - kSocketTraits.blind_burst_bytes;
  EXPECT_GE(took * kSocketTraits.blind_bytes_per_microsecond, sustained);
  EXPECT_LE(took * kSocketTraits.blind_bytes_per_microsecond, sustained * 11 / 10);
}

TEST_F(UcPacing, OwesNothingAfterAWhile) {
  post(IBV_WR_SEND, 1 << 20);
  run_dry();
  e.now += std::chrono::seconds(1);
  post(IBV_WR_SEND, kSocketTraits.blind_burst_bytes / 2);
  EXPECT_EQ(e.transmit(), TransmitResult::kIdle);
}

TEST_F(UcPacing, WaitsForNothingInError) {
  post(IBV_WR_SEND, 1 << 20);
  ASSERT_EQ(e.transmit(), TransmitResult::kPaced);
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_EQ(e.qp->deadline(), kNever);
  expect_sent(1, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(UcPacing, DrainsAtItsPaceToo) {
  post(IBV_WR_SEND, 1 << 20);
  ASSERT_EQ(e.transmit(), TransmitResult::kPaced);
  e.attributes().notify_drained = true;
  e.qp->enter(IBV_QPS_SQD);
  run_dry();
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_SQ_DRAINED));
}

}  // namespace
}  // namespace verbena::transport
