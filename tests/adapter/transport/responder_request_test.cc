// SPDX-License-Identifier: Apache-2.0
// SEND and RDMA WRITE, responder side: what is stored, completed and acknowledged.
#include "adapter/transport/support/responder_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using Op = roce::Operation;

class ResponderRequests : public ResponderTest {};

TEST_F(ResponderRequests, ReceivesAMessageOfOnePacket) {
  post();
  send(Op::kSendOnly, 200, data(100));
  expect_received(1, 100);
  EXPECT_TRUE(std::ranges::equal(inbox.bytes(0, 100), data(100)));
  expect_ack(200, 1);
}

TEST_F(ResponderRequests, ReceivesAMessageOfSeveralPackets) {
  post();
  send(Op::kSendFirst, 200, data(256), false);
  send(Op::kSendMiddle, 201, data(256, 256), false);
  expect_none_received();
  send(Op::kSendLast, 202, data(88, 512));
  const ibv_wc wc = e.received();
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.byte_len, 600u);
  EXPECT_EQ(wc.src_qp, 0x22u);
  EXPECT_EQ(wc.wc_flags, 0u);
  EXPECT_TRUE(std::ranges::equal(inbox.bytes(0, 600), data(600)));
  expect_ack(202, 1);
}

TEST_F(ResponderRequests, ReceivesAnEmptyMessage) {
  post_list({});
  send(Op::kSendOnly, 200);
  expect_received(1, 0);
  expect_ack(200, 1);
}

TEST_F(ResponderRequests, ScattersToSeveralPieces) {
  const ibv_sge list[] = {inbox.sge(1000, 100), inbox.sge(0, 0), inbox.sge(10, 300), inbox.sge(5000, 500)};
  post_list(list);
  send(Op::kSendFirst, 200, data(256));
  send(Op::kSendLast, 201, data(244, 256));
  expect_received(1, 500);
  EXPECT_TRUE(std::ranges::equal(inbox.bytes(1000, 100), data(100)));
  EXPECT_TRUE(std::ranges::equal(inbox.bytes(10, 300), data(300, 100)));
  EXPECT_TRUE(std::ranges::equal(inbox.bytes(5000, 100), data(100, 400)));
}

TEST_F(ResponderRequests, GivesTheImmediateInNetworkOrder) {
  post();
  roce::Headers headers = request(Op::kSendOnlyImmediate, 200, data(8));
  headers.immediate = 0x01020304;
  e.receive(headers, data(8));
  const ibv_wc wc = e.received();
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(wc.imm_data, htobe32(0x01020304));
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
}

TEST_F(ResponderRequests, WritesWhereItIsTold) {
  write(Op::kWriteFirst, 200, data(256), target.address(100), 600, target.key());
  write(Op::kWriteMiddle, 201, data(256, 256));
  expect_ack(201, 0);
  write(Op::kWriteLast, 202, data(88, 512));
  expect_ack(202, 1);
  EXPECT_TRUE(std::ranges::equal(target.bytes(100, 600), data(600)));
  expect_none_received();
}

TEST_F(ResponderRequests, WritesNothingWithoutLookingAtTheKey) {
  write(Op::kWriteOnly, 200, {}, 0x1234, 0, 0xdead);
  expect_ack(200, 1);
}

TEST_F(ResponderRequests, CompletesAReceiveForAWriteWithImmediate) {
  post(0);
  roce::Headers headers = request(Op::kWriteOnlyImmediate, 200, data(40));
  headers.address = target.address();
  headers.dma_length = 40;
  headers.rkey = target.key();
  headers.immediate = 77;
  e.receive(headers, data(40));
  const ibv_wc wc = e.received();
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.byte_len, 40u);
  EXPECT_EQ(wc.imm_data, htobe32(77));
  EXPECT_TRUE(std::ranges::equal(target.bytes(0, 40), data(40)));
}

TEST_F(ResponderRequests, AcknowledgesOnlyWhenAsked) {
  post();
  send(Op::kSendOnly, 200, data(1), false);
  expect_received(1, 1);
  EXPECT_FALSE(e.qp->has_acknowledgement());
  expect_silence();
}

TEST_F(ResponderRequests, GathersAcknowledgementsIntoOne) {
  for (int i = 0; i < 5; ++i) post();
  for (uint32_t psn = 200; psn < 205; ++psn) send(Op::kSendOnly, psn, data(1));
  EXPECT_TRUE(e.qp->has_acknowledgement());
  EXPECT_FALSE(e.qp->has_urgent());
  expect_ack(204, 5);
}

TEST_F(ResponderRequests, HoldsAnAcknowledgementBackUntilItIsWanted) {
  post();
  send(Op::kSendOnly, 200, data(1));
  e.transmit(100, false);
  EXPECT_TRUE(e.sink.packets.empty());
  e.transmit(100, true);
  EXPECT_EQ(e.sink.packets.size(), 1u);
}

TEST_F(ResponderRequests, KeepsAnAcknowledgementThatTheSinkHasNoRoomFor) {
  post();
  send(Op::kSendOnly, 200, data(1));
  e.sink.room = 0;
  EXPECT_EQ(e.transmit(), TransmitResult::kBusy);
  e.sink.room = -1;
  expect_ack(200, 1);
  expect_silence();
}

TEST_F(ResponderRequests, WrapsItsSequenceNumbers) {
  e.qp->enter(IBV_QPS_RESET);
  e.attributes().receive_psn = roce::Psn(0xffffff);
  e.bring_up(IBV_QPS_RTR);
  for (int i = 0; i < 3; ++i) post();
  send(Op::kSendOnly, 0xffffff, data(1));
  expect_ack(0xffffff, 1);
  send(Op::kSendOnly, 0, data(1));
  expect_ack(0, 2);
  send(Op::kSendOnly, 0xffffff, data(1));  // a duplicate
  expect_ack(0, 2);
}

TEST_F(ResponderRequests, TellsOfTheFirstPacketInRtr) {
  post();
  send(Op::kSendOnly, 200, data(1));
  send(Op::kSendOnly, 201, data(1));
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_COMM_EST));
}

TEST_F(ResponderRequests, WakesForSolicitedMessages) {
  for (int i = 0; i < 2; ++i) post();
  EXPECT_EQ(e.recv_cq->arm(true), queues::CompletionQueue::Event::kNone);
  send(Op::kSendOnly, 200, data(1));
  EXPECT_EQ(e.log.completion_events, 0);
  roce::Headers headers = request(Op::kSendOnly, 201, data(1));
  headers.solicited = true;
  e.receive(headers, data(1));
  EXPECT_EQ(e.log.completion_events, 1);
}

// ---- packets for others

TEST_F(ResponderRequests, TakesNothingFromAnotherAddress) {
  post();
  const roce::Packet packet{request(Op::kSendOnly, 200, {}), {}};
  const roce::Path path = path_between(ipv4(9), ipv4(1));
  EXPECT_EQ(e.qp->on_packet({packet, path, 16}, e.now), Verdict::kBadSource);
  expect_none_received();
}

TEST_F(ResponderRequests, TakesNothingForAnotherAddressOfTheHost) {
  post();
  const roce::Packet packet{request(Op::kSendOnly, 200, {}), {}};
  EXPECT_EQ(e.qp->on_packet({packet, path_between(ipv4(2), ipv4(9)), 16}, e.now), Verdict::kBadSource);
  expect_none_received();
  EXPECT_EQ(e.qp->on_packet({packet, path_between(ipv4(2), ipv4(1)), 16}, e.now), Verdict::kAccepted);
}

// A link-local address means nothing without its device, which the path then names. Other addresses belong to
// the host.
TEST_F(ResponderRequests, TakesNothingFromAnotherDeviceWhereAddressesDoNotTell) {
  post();
  const roce::Packet packet{request(Op::kSendOnly, 200, {}), {}};
  roce::Path path = path_between(ipv4(2), ipv4(1));
  const auto verdict_by = [&](uint32_t own_device, uint32_t device) {
    e.attributes().path.interface_index = own_device;
    path.interface_index = device;
    return e.qp->on_packet({packet, path, 16}, e.now);
  };
  EXPECT_EQ(verdict_by(5, 6), Verdict::kBadSource);
  expect_none_received();
  EXPECT_EQ(verdict_by(5, 5), Verdict::kAccepted);
  EXPECT_EQ(verdict_by(5, 0), Verdict::kAccepted) << "it came by memory";
  EXPECT_EQ(verdict_by(0, 6), Verdict::kAccepted);
}

TEST_F(ResponderRequests, TakesNothingOfAnotherService) {
  roce::Headers headers = request(Op::kSendOnly, 200, {});
  headers.opcode = roce::make_opcode(roce::Service::kUc, Op::kSendOnly);
  EXPECT_EQ(e.receive(headers), Verdict::kWrongService);
}

TEST_F(ResponderRequests, TakesNothingOfAnotherPartition) {
  roce::Headers headers = request(Op::kSendOnly, 200, {});
  headers.pkey = 0x8001;
  EXPECT_EQ(e.receive(headers), Verdict::kBadPkey);
  headers.pkey = 0x7fff;  // a limited member of the default partition
  post();
  EXPECT_EQ(e.receive(headers), Verdict::kAccepted);
}

TEST_F(ResponderRequests, TakesNothingBeforeRtrAndAfterAnError) {
  const roce::Headers headers = request(Op::kSendOnly, 200, {});
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_EQ(e.receive(headers), Verdict::kNotReady);
  e.qp->enter(IBV_QPS_RESET);
  EXPECT_EQ(e.receive(headers), Verdict::kNotReady);
  e.qp->enter(IBV_QPS_INIT);
  EXPECT_EQ(e.receive(headers), Verdict::kNotReady);
}

TEST_F(ResponderRequests, StillAcknowledgesInErrorWhatItHadTaken) {
  // The application may end its QP as soon as it has the message. The peer's request has succeeded all the
  // same.
  post();
  post();
  send(Op::kSendOnly, 200, data(1));
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_TRUE(e.qp->has_acknowledgement());
  expect_ack(200, 1);
  expect_received(1, 1);
  expect_received(2, 0, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(ResponderRequests, FlushesReceivesInError) {
  for (int i = 0; i < 3; ++i) post();
  send(Op::kSendFirst, 200, data(256));
  e.qp->enter(IBV_QPS_ERR);
  for (uint64_t id = 1; id <= 3; ++id) expect_received(id, 0, IBV_WC_WR_FLUSH_ERR);
  post();
  EXPECT_TRUE(e.qp->has_urgent());
  e.transmit();
  expect_received(4, 0, IBV_WC_WR_FLUSH_ERR);
}

}  // namespace
}  // namespace verbena::transport
