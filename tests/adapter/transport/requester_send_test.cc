// SPDX-License-Identifier: Apache-2.0
// The packets that the requester sends for SEND and RDMA WRITE, and when the requests complete.
#include "adapter/transport/support/requester_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using Op = roce::Operation;

class RequesterSending : public RequesterTest {};

TEST_F(RequesterSending, SendsOnePacketForAShortMessage) {
  post(IBV_WR_SEND, 100);
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].operation(), Op::kSendOnly);
  EXPECT_EQ(packets[0].psn(), 100u);
  EXPECT_EQ(packets[0].headers.destination, roce::Qpn(0x22));
  EXPECT_EQ(packets[0].headers.pkey, roce::kDefaultPkey);
  EXPECT_FALSE(packets[0].headers.migrated);
  EXPECT_TRUE(packets[0].asks());
  EXPECT_EQ(packets[0].path, e.attributes().path);
  EXPECT_TRUE(std::ranges::equal(packets[0].payload, local.bytes(0, 100)));
}

TEST_F(RequesterSending, CutsAMessageIntoPacketsOfThePathMtu) {
  post(IBV_WR_SEND, 600);
  const auto packets = e.transmitted();
  EXPECT_THAT(operations(packets), ElementsAre(Op::kSendFirst, Op::kSendMiddle, Op::kSendLast));
  EXPECT_THAT(psns(packets), ElementsAre(100, 101, 102));
  EXPECT_EQ(packets[0].payload.size(), 256u);
  EXPECT_EQ(packets[2].payload.size(), 600u - 512);
  EXPECT_TRUE(std::ranges::equal(packets[2].payload, local.bytes(512, 88)));
}

TEST_F(RequesterSending, SendsAMessageOfExactlyTwoPacketsAsFirstAndLast) {
  post(IBV_WR_SEND, 512);
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kSendFirst, Op::kSendLast));
}

TEST_F(RequesterSending, SendsAnEmptyMessageAsOnePacketWithoutPayload) {
  post(IBV_WR_SEND, 0);
  post(IBV_WR_RDMA_WRITE, 0);
  const auto packets = e.transmitted();
  EXPECT_THAT(operations(packets), ElementsAre(Op::kSendOnly, Op::kWriteOnly));
  EXPECT_TRUE(packets[0].payload.empty());
  EXPECT_EQ(packets[1].headers.dma_length, 0u);
  acknowledge(101);
  expect_sent(1);
  expect_sent(2);
}

TEST_F(RequesterSending, PutsTheImmediateIntoTheLastPacketInNetworkOrder) {
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, 300);
  wr.imm_data = htobe32(0x01020304);
  ASSERT_TRUE(post_send(*e.qp, wr));
  const auto packets = e.transmitted();
  EXPECT_THAT(operations(packets), ElementsAre(Op::kSendFirst, Op::kSendLastImmediate));
  EXPECT_EQ(packets[1].headers.immediate, 0x01020304u);
}

TEST_F(RequesterSending, PutsAddressKeyAndLengthIntoTheFirstPacketOfAWrite) {
  post(IBV_WR_RDMA_WRITE, 600);
  const auto packets = e.transmitted();
  EXPECT_THAT(operations(packets), ElementsAre(Op::kWriteFirst, Op::kWriteMiddle, Op::kWriteLast));
  EXPECT_EQ(packets[0].headers.address, kRemoteAddress);
  EXPECT_EQ(packets[0].headers.rkey, kRemoteKey);
  EXPECT_EQ(packets[0].headers.dma_length, 600u);
}

TEST_F(RequesterSending, EndsAWriteWithImmediateSo) {
  post(IBV_WR_RDMA_WRITE_WITH_IMM, 256);
  post(IBV_WR_RDMA_WRITE_WITH_IMM, 257);
  EXPECT_THAT(operations(e.transmitted()),
              ElementsAre(Op::kWriteOnlyImmediate, Op::kWriteFirst, Op::kWriteLastImmediate));
}

TEST_F(RequesterSending, MarksTheLastPacketSolicitedForMessagesThatWakeThePeer) {
  post(IBV_WR_SEND, 300, IBV_SEND_SOLICITED);
  post(IBV_WR_RDMA_WRITE, 10, IBV_SEND_SOLICITED);
  post(IBV_WR_RDMA_WRITE_WITH_IMM, 10, IBV_SEND_SOLICITED);
  post(IBV_WR_SEND, 10);
  std::vector<bool> solicited;
  for (const SentPacket& p : e.transmitted()) solicited.push_back(p.headers.solicited);
  EXPECT_THAT(solicited, ElementsAre(false, true, false, true, false));
}

TEST_F(RequesterSending, GathersFromSeveralPieces) {
  const ibv_sge pieces[] = {local.sge(10, 100), local.sge(500, 0), local.sge(1000, 200), local.sge(0, 7)};
  ibv_send_wr wr = request(IBV_WR_SEND, 0);
  wr.sg_list = const_cast<ibv_sge*>(pieces);
  wr.num_sge = 4;
  ASSERT_TRUE(post_send(*e.qp, wr));
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 2u);
  std::vector<std::byte> whole = packets[0].payload;
  whole.insert(whole.end(), packets[1].payload.begin(), packets[1].payload.end());
  std::vector<std::byte> expected;
  for (const ibv_sge& sge : pieces) {
    const auto* at = reinterpret_cast<const std::byte*>(sge.addr);
    expected.insert(expected.end(), at, at + sge.length);
  }
  EXPECT_EQ(whole, expected);
}

TEST_F(RequesterSending, SendsInlineDataAsItWasWhenPosted) {
  std::vector<std::byte> before(local.data(), local.data() + 300);
  post_with_key(IBV_WR_SEND, 300, 0, IBV_SEND_INLINE);  // inline data needs no key
  local.fill(2);
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_TRUE(std::ranges::equal(packets[0].payload, std::span(before).first(256)));
  EXPECT_TRUE(std::ranges::equal(packets[1].payload, std::span(before).subspan(256)));
}

TEST_F(RequesterSending, CompletesWhenAcknowledgedAndNotBefore) {
  post(IBV_WR_SEND, 600);
  e.transmit();
  expect_none_sent();
  acknowledge(101);  // the first two packets of three
  expect_none_sent();
  acknowledge(102);
  const ibv_wc wc = e.sent();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_SEND);
  EXPECT_FALSE(e.qp->has_outstanding());
  EXPECT_EQ(e.qp->deadline(), kNever);
}

TEST_F(RequesterSending, CompletesEverythingThatOneAcknowledgementCovers) {
  for (int i = 0; i < 5; ++i) post(IBV_WR_SEND, 10);
  e.transmit();
  acknowledge(103);
  for (uint64_t id = 1; id <= 4; ++id) expect_sent(id);
  expect_none_sent();
}

TEST_F(RequesterSending, IgnoresAcknowledgementsOfThePastAndTheFuture) {
  post(IBV_WR_SEND, 10);
  e.transmit();
  acknowledge(101);  // acknowledges a PSN that was never sent
  acknowledge(99);
  acknowledge(100 + (1 << 22));
  expect_none_sent();
  acknowledge(100);
  expect_sent(1);
  acknowledge(100);  // a duplicate
  expect_none_sent();
}

TEST_F(RequesterSending, IgnoresAReservedSyndrome) {
  post(IBV_WR_SEND, 10);
  e.transmit();
  acknowledge(100, 0x40);
  expect_none_sent();
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
}

TEST_F(RequesterSending, AsksForAnAcknowledgementOfTheLastOfWhatIsThere) {
  for (int i = 0; i < 4; ++i) post(IBV_WR_SEND, 10);
  std::vector<bool> asks;
  for (const SentPacket& p : e.transmitted()) asks.push_back(p.asks());
  EXPECT_THAT(asks, ElementsAre(false, false, false, true));
}

TEST_F(RequesterSending, AsksOnceForTwoSuperPacketsOfALargeWindow) {
  // With an MTU of 256, UDP_SEGMENT takes 64 packets at once.
  post(IBV_WR_SEND, 6 * 64 * 256);
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 6u * 64) << "they fit the window it starts with";
  for (size_t i = 0; i < packets.size(); ++i) EXPECT_EQ(packets[i].asks(), i % 128 == 127) << i;
}

TEST_F(RequesterSending, AsksForASuperPacketThatFillsTheWindow) {
  post(IBV_WR_SEND, 1 << 20);
  ASSERT_EQ(e.transmitted().size(), 6u * 64);
  acknowledge(100 + 63);
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 64u);
  for (size_t i = 0; i < packets.size(); ++i) EXPECT_EQ(packets[i].asks(), i == 63) << i;
}

TEST_F(RequesterSending, AsksTwiceASmallWindowAtLeast) {
  post(IBV_WR_SEND, 1 << 20);
  e.transmitted();
  e.wait_for_timer();  // the window shrinks to one packet
  e.transmitted();
  acknowledge(100);
  acknowledge(101);
  const auto packets = e.transmitted();
  const auto asks = std::ranges::count_if(packets, [](const SentPacket& p) { return p.asks(); });
  EXPECT_GE(asks, 2);
}

TEST_F(RequesterSending, KeepsWithinItsWindowAndTheLastPacketOfItAsks) {
  post(IBV_WR_SEND, 1 << 20);
  auto packets = e.transmitted();
  uint32_t bytes = 0;
  for (const SentPacket& p : packets) bytes += static_cast<uint32_t>(p.payload.size());
  EXPECT_LE(bytes, 2 * kSocketTraits.burst_charge());
  EXPECT_TRUE(packets.back().asks());
  EXPECT_FALSE(e.qp->has_urgent());
  acknowledge(packets.back().psn() - 10);
  EXPECT_TRUE(e.qp->has_urgent());
  packets = e.transmitted();
  EXPECT_GE(packets.size(), 10u);
  EXPECT_TRUE(packets.back().asks());
}

// Otherwise runs would stay split for good, because each part is acknowledged separately.
TEST_F(RequesterSending, BeginsARunWhenTheWindowHasRoomForAllOfIt) {
  post(IBV_WR_SEND, 1 << 20);
  const size_t window = e.transmitted().size();
  EXPECT_EQ(window, 6u * 64);
  acknowledge(100 + 4);
  EXPECT_FALSE(e.qp->has_urgent());
  EXPECT_EQ(e.transmitted().size(), 0u);
  acknowledge(100 + 63);
  EXPECT_TRUE(e.qp->has_urgent());
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size() % 64, 0u);
  EXPECT_TRUE(packets.back().asks());
}

TEST_F(RequesterSending, FillsTheWindowWithWhatIsLessThanARun) {
  post(IBV_WR_SEND, 6 * 64 * 256);
  e.transmitted();
  acknowledge(100 + 3);
  post(IBV_WR_SEND, 4 * 256);
  EXPECT_EQ(e.transmitted().size(), 4u);
}

TEST_F(RequesterSending, WrapsItsSequenceNumbers) {
  e.qp->enter(IBV_QPS_RESET);
  e.attributes().send_psn = roce::Psn(0xfffffe);
  e.bring_up();
  post(IBV_WR_SEND, 4 * 256);
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(0xfffffe, 0xffffff, 0, 1));
  EXPECT_EQ(e.qp->next_send_psn(), roce::Psn(2));
  acknowledge(0xffffff);
  expect_none_sent();
  acknowledge(1);
  expect_sent(1);
}

TEST_F(RequesterSending, CompletesOnlyWhatIsSignaledUnlessItFails) {
  Endpoint<RcQueuePair> quiet({.signal_all = false});
  Buffer& data = quiet.memory.add(4096);
  quiet.bring_up();
  ibv_sge sge = data.sge(0, 10);
  for (uint64_t id = 1; id <= 4; ++id) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = id == 2 ? IBV_SEND_SIGNALED : 0;
    ASSERT_TRUE(post_send(*quiet.qp, wr));
  }
  quiet.transmit();
  roce::Headers ack = rc_headers(Op::kAcknowledge, 102);
  ack.syndrome = roce::ack_syndrome();
  quiet.receive(ack);
  EXPECT_EQ(quiet.sent().wr_id, 2u);
  EXPECT_TRUE(quiet.send_cq->empty());
  quiet.qp->enter(IBV_QPS_ERR);
  const ibv_wc flushed = quiet.sent();
  EXPECT_EQ(flushed.wr_id, 4u);
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(RequesterSending, FreesTheRingAsRequestsAreAcknowledged) {
  Endpoint<RcQueuePair> narrow({.send_requests = 4});
  narrow.bring_up();
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(post_send(*narrow.qp, wr));
  EXPECT_FALSE(post_send(*narrow.qp, wr));
  narrow.transmit();
  EXPECT_FALSE(post_send(*narrow.qp, wr)) << "sent, but it may have to be sent again";
  roce::Headers ack = rc_headers(Op::kAcknowledge, 100);
  ack.syndrome = roce::ack_syndrome();
  narrow.receive(ack);
  EXPECT_TRUE(post_send(*narrow.qp, wr));
  EXPECT_FALSE(post_send(*narrow.qp, wr));
}

TEST_F(RequesterSending, GoesOnWhereAFullSinkStoppedIt) {
  post(IBV_WR_SEND, 1024);
  e.sink.room = 2;
  EXPECT_EQ(e.transmit(), TransmitResult::kBusy);
  e.sink.room = -1;
  EXPECT_TRUE(e.qp->has_urgent());
  EXPECT_EQ(e.transmit(), TransmitResult::kIdle);
  EXPECT_THAT(psns({e.sink.packets.begin(), e.sink.packets.end()}), ElementsAre(100, 101, 102, 103));
}

TEST_F(RequesterSending, SendsNoMoreThanItsBudget) {
  post(IBV_WR_SEND, 1024);
  EXPECT_EQ(e.transmit(3), TransmitResult::kMore);
  EXPECT_EQ(e.sink.packets.size(), 3u);
  EXPECT_EQ(e.transmit(3), TransmitResult::kIdle);
  EXPECT_EQ(e.sink.packets.size(), 4u);
}

TEST_F(RequesterSending, SendsNothingBeforeRts) {
  Endpoint<RcQueuePair> early;
  early.bring_up(IBV_QPS_RTR);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ASSERT_TRUE(post_send(*early.qp, wr));
  EXPECT_FALSE(early.qp->has_urgent());
  EXPECT_TRUE(early.transmitted().empty());
  early.qp->enter(IBV_QPS_RTS);
  EXPECT_EQ(early.transmitted().size(), 1u);
}

// ---- SQD

class RequesterDraining : public RequesterTest {
 protected:
  void tune(QpAttributes& attributes) override { attributes.notify_drained = true; }
};

TEST_F(RequesterDraining, FinishesWhatHasBegunAndStartsNothingNew) {
  post(IBV_WR_SEND, 1024);
  post(IBV_WR_SEND, 10);
  e.transmit(2);
  e.qp->enter(IBV_QPS_SQD);
  auto packets = e.transmitted();
  EXPECT_THAT(psns(packets), ElementsAre(100, 101, 102, 103));
  EXPECT_TRUE(packets.back().asks());
  EXPECT_TRUE(e.log.events.empty());
  acknowledge(103);
  expect_sent(1);
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_SQ_DRAINED));
  EXPECT_TRUE(e.transmitted().empty());
  e.qp->enter(IBV_QPS_RTS);
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(104));
}

TEST_F(RequesterDraining, IsAnnouncedAtOnceWhenNothingIsLeft) {
  e.qp->enter(IBV_QPS_SQD);
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_SQ_DRAINED));
}

TEST_F(RequesterDraining, AsksForTheAcknowledgementThatItLeftToTheNextRequest) {
  post(IBV_WR_SEND, 10);
  post(IBV_WR_SEND, 10);
  e.transmit(1);
  ASSERT_FALSE(e.sink.take().asks());
  e.qp->enter(IBV_QPS_SQD);
  const auto packets = e.transmitted();
  ASSERT_THAT(psns(packets), ElementsAre(100));
  EXPECT_TRUE(packets[0].asks());
  acknowledge(100);
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_SQ_DRAINED));
}

}  // namespace
}  // namespace verbena::transport
