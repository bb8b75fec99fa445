// SPDX-License-Identifier: Apache-2.0
// Consecutive packets of a message that travel as one, where the route allows it; and a QP that changes its
// route.
#include "adapter/transport/support/requester_test.h"
#include "adapter/transport/support/responder_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using Op = roce::Operation;

constexpr uint32_t kMtu = 256;

std::vector<uint32_t> counts(const std::vector<SentPacket>& packets) {
  std::vector<uint32_t> all;
  for (const SentPacket& p : packets) all.push_back(p.count);
  return all;
}

// ---- sending side

class RequesterJoining : public RequesterTest {
 protected:
  void SetUp() override {
    e.routes.route.traits.joined_bytes = 4 * kMtu;
    RequesterTest::SetUp();
  }
};

TEST_F(RequesterJoining, SendsAMessageInRunsWithThePsnsOfItsPackets) {
  post(IBV_WR_SEND, 9 * kMtu + 1);
  const auto packets = e.transmitted();
  EXPECT_THAT(operations(packets), ElementsAre(Op::kSendFirst, Op::kSendMiddle, Op::kSendLast));
  EXPECT_THAT(counts(packets), ElementsAre(4, 4, 2));
  EXPECT_THAT(psns(packets), ElementsAre(100, 104, 108));
  EXPECT_EQ(packets[2].payload.size(), kMtu + 1);
  EXPECT_EQ(e.counter(kSentPackets), 10u) << "as on a network";
}

TEST_F(RequesterJoining, SendsAShortMessageAsOnePacketOrOneRun) {
  post(IBV_WR_SEND, 10);
  post(IBV_WR_RDMA_WRITE, 4 * kMtu);
  const auto packets = e.transmitted();
  EXPECT_THAT(operations(packets), ElementsAre(Op::kSendOnly, Op::kWriteOnly));
  EXPECT_THAT(counts(packets), ElementsAre(1, 4));
  EXPECT_THAT(psns(packets), ElementsAre(100, 101));
  acknowledge(104);
  expect_sent(1);
  expect_sent(2);
}

TEST_F(RequesterJoining, SendsAgainFromTheMiddleOfARun) {
  post(IBV_WR_SEND, 4 * kMtu);
  e.transmitted();
  nak(102, NakCode::kSequenceError);
  const auto packets = e.transmitted();
  EXPECT_THAT(operations(packets), ElementsAre(Op::kSendLast));
  EXPECT_THAT(psns(packets), ElementsAre(102));
  EXPECT_THAT(counts(packets), ElementsAre(2));
  EXPECT_EQ(e.counter(kRetransmittedPackets), 2u);
}

class ReadingJoined : public RequesterJoining {
 protected:
  void respond_joined(Operation operation, uint32_t psn, ConstBytes payload, uint32_t count) {
    roce::Headers headers = rc_headers(operation, psn);
    headers.syndrome = roce::ack_syndrome();
    e.receive(headers, payload, count);
  }
  const std::vector<std::byte> data = std::vector<std::byte>(6 * kMtu, std::byte{0x77});
  ConstBytes part(size_t from, size_t bytes) const { return std::span(data).subspan(from, bytes); }
};

TEST_F(ReadingJoined, TakesResponsesInRuns) {
  post(IBV_WR_RDMA_READ, 6 * kMtu);
  e.transmitted();
  respond_joined(Op::kReadResponseFirst, 100, part(0, 4 * kMtu), 4);
  expect_none_sent();
  respond_joined(Op::kReadResponseLast, 104, part(0, 2 * kMtu), 2);
  expect_sent(1);
  EXPECT_TRUE(std::ranges::equal(local.bytes(0, 6 * kMtu), data));
  EXPECT_EQ(e.counter(kReceivedPackets), 6u) << "as on a network";
}

TEST_F(ReadingJoined, ARunBeyondTheEndOfTheReadIsABadResponse) {
  post(IBV_WR_RDMA_READ, 6 * kMtu);
  e.transmitted();
  respond_joined(Op::kReadResponseOnly, 100, part(0, 6 * kMtu), 7);
  expect_sent(1, IBV_WC_BAD_RESP_ERR);
}

TEST_F(ReadingJoined, ARunThatIsNotFullIsABadResponse) {
  post(IBV_WR_RDMA_READ, 6 * kMtu);
  e.transmitted();
  respond_joined(Op::kReadResponseFirst, 100, part(0, 3 * kMtu), 4);
  expect_sent(1, IBV_WC_BAD_RESP_ERR);
}

// ---- receiving side

class ResponderJoined : public ResponderTest {
 protected:
  void send_joined(Operation operation, uint32_t psn, size_t bytes, uint32_t count) {
    e.receive(request(operation, psn, data(bytes)), data(bytes), count);
  }
};

TEST_F(ResponderJoined, TakesARunAsSoManyPackets) {
  post();
  send_joined(Op::kSendFirst, 200, 4 * kMtu, 4);
  send_joined(Op::kSendLast, 204, kMtu + 1, 2);
  expect_ack(205, 1);
  expect_received(1, 5 * kMtu + 1);
  EXPECT_EQ(e.counter(kReceivedPackets), 6u) << "as on a network";
}

TEST_F(ResponderJoined, ARunMustBeFullButForItsLastPacket) {
  post();
  send_joined(Op::kSendOnly, 200, kMtu, 2);
  expect_nak(200, NakCode::kInvalidRequest, 0);
}

TEST_F(ResponderJoined, ARunOfALargerMtuIsInvalid) {
  post();
  send_joined(Op::kSendOnly, 200, 4 * kMtu, 2);
  expect_nak(200, NakCode::kInvalidRequest, 0);
}

TEST_F(ResponderJoined, ARunAfterAGapIsAskedForAgain) {
  post();
  send_joined(Op::kSendOnly, 203, 2 * kMtu, 2);
  expect_nak(200, NakCode::kSequenceError, 0);
}

TEST_F(ResponderJoined, AnswersAReadInRunsWhereTheRouteAllowsIt) {
  e.routes.route.traits.joined_bytes = 4 * kMtu;
  read(200, 0, 9 * kMtu);
  const auto packets = e.transmitted();
  EXPECT_THAT(operations(packets),
              ElementsAre(Op::kReadResponseFirst, Op::kReadResponseMiddle, Op::kReadResponseLast));
  EXPECT_THAT(psns(packets), ElementsAre(200, 204, 208));
  EXPECT_THAT(counts(packets), ElementsAre(4, 4, 1));
  EXPECT_EQ(e.counter(kSentPackets), 9u) << "as many as who reads counts";
}

TEST_F(ResponderJoined, AcknowledgesBeforeItsOwnRequestsWhereThoseCarryIt) {
  e.routes.route.traits.carries_acknowledgements = true;
  e.qp->enter(IBV_QPS_RTS);
  post();
  send(Op::kSendOnly, 200, data(4));
  ibv_sge sge = target.sge(0, 4);
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ASSERT_TRUE(post_send(*e.qp, wr));
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kAcknowledge, Op::kSendOnly));
}

// ---- change of route

class Rerouting : public RequesterTest {
 protected:
  void better_route() { e.routes.route.traits.joined_bytes = 4 * kMtu; }
};

TEST_F(Rerouting, HappensAtOnceWhenNothingIsOutstanding) {
  better_route();
  e.qp->reroute();
  post(IBV_WR_SEND, 4 * kMtu);
  EXPECT_THAT(counts(e.transmitted()), ElementsAre(4));
}

TEST_F(Rerouting, WaitsForWhatIsUnderWayAndHoldsWhatIsNew) {
  post(IBV_WR_SEND, 10);
  e.transmitted();
  const int asked = e.routes.asked;
  e.qp->reroute();
  EXPECT_EQ(e.routes.asked, asked);
  better_route();
  post(IBV_WR_SEND, 4 * kMtu);
  EXPECT_TRUE(e.transmitted().empty());
  acknowledge(100);
  EXPECT_TRUE(e.qp->has_urgent());
  EXPECT_THAT(counts(e.transmitted()), ElementsAre(4));
  EXPECT_EQ(e.routes.asked, asked + 1);
}

TEST_F(Rerouting, AsksForTheAcknowledgementThatWhatIsHeldWouldHaveAskedFor) {
  post(IBV_WR_SEND, 3 * kMtu);
  e.transmit(2);
  ASSERT_THAT(psns({e.sink.packets.begin(), e.sink.packets.end()}), ElementsAre(100, 101));
  ASSERT_FALSE(e.sink.packets.back().asks());
  e.sink.packets.clear();
  e.qp->reroute();
  const auto packets = e.transmitted();
  ASSERT_THAT(psns(packets), ElementsAre(101));
  EXPECT_TRUE(packets[0].asks());
  acknowledge(101);
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(102));
}

TEST_F(Rerouting, AsksAgainWhenThatIsLost) {
  post(IBV_WR_SEND, 3 * kMtu);
  e.transmit(2);
  e.qp->reroute();
  e.transmitted();
  e.wait_for_timer();
  const auto packets = e.transmitted();
  ASSERT_FALSE(packets.empty());
  EXPECT_TRUE(packets.back().asks()) << "or nobody would ever answer";
}

TEST_F(Rerouting, WhatIsLostMeanwhileIsSentAgainByTheOldRoute) {
  post(IBV_WR_SEND, 10);
  e.transmitted();
  e.qp->reroute();
  e.wait_for_timer();
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(100));
}

TEST_F(Rerouting, IsNothingBeforeTheQpIsConnected) {
  e.qp->enter(IBV_QPS_RESET);
  const int asked = e.routes.asked;
  e.qp->reroute();
  EXPECT_EQ(e.routes.asked, asked);
}

}  // namespace
}  // namespace verbena::transport
