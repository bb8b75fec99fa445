// SPDX-License-Identifier: Apache-2.0
// Receiving on a UC QP: a message arrives whole or not at all.
#include "adapter/transport/support/uc_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;

class UcReceive : public UcTest {};

TEST_F(UcReceive, TakesAMessageOfOnePacket) {
  post_receive();
  arrive(Op::kSendOnly, 200, data(100));
  expect_received(1, 100);
  EXPECT_TRUE(inbox_holds(data(100)));
  EXPECT_TRUE(e.transmitted().empty()) << "nothing is ever answered";
}

TEST_F(UcReceive, TakesAMessageOfMany) {
  post_receive();
  arrive(Op::kSendFirst, 200, data(256));
  arrive(Op::kSendMiddle, 201, data(256, 256));
  expect_none_received();
  arrive(Op::kSendLastImmediate, 202, data(10, 512));
  const ibv_wc wc = e.received();
  EXPECT_EQ(wc.byte_len, 522u);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(wc.imm_data, htobe32(0x0a0b0c0d));
  EXPECT_TRUE(inbox_holds(data(522)));
  EXPECT_EQ(e.qp->next_receive_psn(), roce::Psn(203));
}

TEST_F(UcReceive, WritesWhereTheMessageSays) {
  arrive_write(Op::kWriteFirst, 200, data(256), 8, 300);
  arrive_write(Op::kWriteLast, 201, data(44, 256), 0, 0);
  EXPECT_TRUE(std::ranges::equal(target.bytes(8, 300), data(300)));
  expect_none_received();
}

TEST_F(UcReceive, CompletesAReceiveForAWriteWithImmediate) {
  post_receive();
  arrive_write(Op::kWriteFirst, 200, data(256), 0, 300);
  arrive_write(Op::kWriteLastImmediate, 201, data(44, 256), 0, 0);
  const ibv_wc wc = e.received();
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.byte_len, 300u);
  EXPECT_EQ(wc.imm_data, htobe32(0x0a0b0c0d));
}

// ---- losses

struct Loss {
  const char* name;
  uint32_t lost;  // index of the lost packet, of three
};

class UcLoss : public UcTest, public testing::WithParamInterface<Loss> {
 protected:
  // Receives three packets from this PSN on, without the lost one.
  void arrive_without_it(uint32_t psn) {
    static constexpr Op kPackets[] = {Op::kSendFirst, Op::kSendMiddle, Op::kSendLast};
    for (uint32_t i = 0; i < 3; ++i) {
      if (i != GetParam().lost) arrive(kPackets[i], psn + i, data(i == 2 ? 50 : 256, i * 256));
    }
  }
};

TEST_P(UcLoss, DropsTheMessageWholeAndKeepsItsReceiveForTheNext) {
  post_receive();
  arrive_without_it(200);
  expect_none_received();
  arrive(Op::kSendOnly, 203, data(77, 1000));
  expect_received(1, 77);
  EXPECT_TRUE(inbox_holds(data(77, 1000)));
  expect_none_received();
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
}

TEST_P(UcLoss, TakesAMessageOfManyRightAfter) {
  post_receive();
  arrive_without_it(200);
  arrive(Op::kSendFirst, 203, data(256, 3000));
  arrive(Op::kSendLast, 204, data(9, 3256));
  expect_received(1, 265);
  EXPECT_TRUE(inbox_holds(data(265, 3000)));
}

TEST_P(UcLoss, MixesNoOtherMessagesPacketsIn) {
  post_receive();
  // Two consecutive messages lose the same packet. Their halves must not be joined to one message.
  arrive_without_it(200);
  arrive_without_it(203);
  expect_none_received();
}
INSTANTIATE_TEST_SUITE_P(Of, UcLoss, testing::Values(Loss{"First", 0}, Loss{"Middle", 1}, Loss{"Last", 2}),
                         [](const auto& test) { return test.param.name; });

TEST_F(UcReceive, JoinsNoEndToAnotherMessagesBeginning) {
  post_receive();
  arrive(Op::kSendFirst, 200, data(256));
  // 201 (its Last) and 202 (the next First) are lost.
  arrive(Op::kSendLast, 203, data(20));
  expect_none_received();
  EXPECT_EQ(e.counter(kOutOfSequence), 1u);
}

TEST_F(UcReceive, JoinsNoWritesEndToASendsBeginning) {
  post_receive();
  arrive(Op::kSendFirst, 200, data(256));
  arrive_write(Op::kWriteLast, 201, data(20), 0, 0);
  expect_none_received();
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
  arrive(Op::kSendOnly, 202, data(5));
  expect_received(1, 5);
}

TEST_F(UcReceive, BeginsWithAnyPsnWhenTheFirstPacketsWereLost) {
  post_receive();
  arrive(Op::kSendOnly, 5000, data(3));
  expect_received(1, 3);
  EXPECT_EQ(e.qp->next_receive_psn(), roce::Psn(5001));
}

TEST_F(UcReceive, GoesOnAfterTheLastPsn) {
  e.qp->enter(IBV_QPS_RESET);
  e.attributes().receive_psn = roce::Psn(0xffffff);
  e.bring_up();
  post_receive();
  arrive(Op::kSendFirst, 0xffffff, data(256));
  arrive(Op::kSendLast, 0, data(6, 256));
  expect_received(1, 262);
}

TEST_F(UcReceive, LosesOfAWriteOnlyWhatWasLost) {
  arrive_write(Op::kWriteFirst, 200, data(256), 0, 600);
  arrive_write(Op::kWriteLast, 202, data(88, 512), 0, 0);  // 201 is lost
  EXPECT_TRUE(std::ranges::equal(target.bytes(0, 256), data(256)));
  EXPECT_EQ(std::ranges::count(target.bytes(256, 344), std::byte{0}), 344);
}

// ---- late and duplicate packets

TEST_F(UcReceive, TakesNothingTwice) {
  for (int i = 0; i < 3; ++i) post_receive();
  arrive(Op::kSendOnly, 200, data(10));
  arrive(Op::kSendOnly, 200, data(10));
  arrive(Op::kSendOnly, 201, data(11));
  expect_received(1, 10);
  expect_received(2, 11);
  expect_none_received();
  EXPECT_EQ(e.counter(kDuplicateRequests), 1u);
}

TEST_F(UcReceive, IsNotInterruptedByALatePacket) {
  post_receive();
  post_receive();
  arrive(Op::kSendOnly, 200, data(10));
  arrive(Op::kSendFirst, 201, data(256, 512));
  arrive(Op::kSendOnly, 200, data(10));
  arrive(Op::kSendLast, 202, data(8, 768));
  expect_received(1, 10);
  expect_received(2, 264);
  EXPECT_TRUE(inbox_holds(data(264, 512)));
}

TEST_F(UcReceive, TakesNoMessageAfterALaterOne) {
  post_receive();
  post_receive();
  arrive(Op::kSendOnly, 201, data(11));
  arrive(Op::kSendOnly, 200, data(10));  // was overtaken
  expect_received(1, 11);
  expect_none_received();
}

TEST_F(UcReceive, FollowsAPeerThatBeginsAnew) {
  post_receive();
  post_receive();
  arrive(Op::kSendOnly, 200 + 20'000, data(1));
  arrive(Op::kSendOnly, 300, data(2));  // older than any delayed packet
  expect_received(1, 1);
  expect_received(2, 2);
}

// ---- without a receive, or with an unsuitable one

TEST_F(UcReceive, DropsWithoutAReceiveTheWholeMessage) {
  arrive(Op::kSendFirst, 200, data(256));
  post_receive();  // too late for this message
  arrive(Op::kSendMiddle, 201, data(256));
  arrive(Op::kSendLast, 202, data(1));
  expect_none_received();
  arrive(Op::kSendOnly, 203, data(9));
  expect_received(1, 9);
  EXPECT_EQ(e.counter(kDroppedDatagrams), 1u);
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
}

TEST_F(UcReceive, DropsAWriteWithImmediateWithoutAReceive) {
  arrive_write(Op::kWriteOnlyImmediate, 200, data(100), 0, 100);
  EXPECT_EQ(std::ranges::count(target.bytes(0, 100), std::byte{0}), 100);
  post_receive();
  arrive_write(Op::kWriteOnlyImmediate, 201, data(100), 0, 100);
  EXPECT_EQ(e.received().wr_id, 1u);
  expect_none_received();
}

TEST_F(UcReceive, DropsWhatIsLongerThanItsReceiveAndKeepsIt) {
  post_receive(300);
  arrive(Op::kSendFirst, 200, data(256));
  arrive(Op::kSendMiddle, 201, data(256));
  arrive(Op::kSendLast, 202, data(256));
  expect_none_received();
  EXPECT_EQ(inbox.bytes()[300], std::byte{0}) << "nothing beyond the receive is touched";
  arrive(Op::kSendOnly, 203, data(200));
  expect_received(1, 200);
}

TEST_F(UcReceive, EndsWhenAReceiveNamesMemoryThatIsNotOurs) {
  ibv_sge sge = {inbox.address(), 100, 0xdead};
  post_receive_list({&sge, 1});
  post_receive();
  arrive(Op::kSendOnly, 200, data(10));
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  ibv_wc wc = e.received();
  EXPECT_EQ(wc.wr_id, 1u);
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  wc = e.received();
  EXPECT_EQ(wc.wr_id, 2u);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(UcReceive, DropsWritesThatAreNotAllowedAndLivesOn) {
  roce::Headers headers = packet(Op::kWriteOnly, 200, data(10));
  headers.address = target.address();
  headers.dma_length = 10;
  headers.rkey = target.key() ^ 1;
  e.receive(headers, data(10));
  EXPECT_EQ(target.bytes()[0], std::byte{0});

  arrive_write(Op::kWriteOnly, 201, data(10), (1 << 16) - 9, 10);  // exceeds the region

  Buffer& foreign = e.memory.add(100, kAllAccess, kTestPd + 1);
  headers.psn = roce::Psn(202);
  headers.rkey = foreign.key();
  headers.address = foreign.address();
  e.receive(headers, data(10));
  EXPECT_EQ(foreign.bytes()[0], std::byte{0});

  e.attributes().access = 0;
  arrive_write(Op::kWriteOnly, 203, data(10), 0, 10);
  EXPECT_EQ(target.bytes()[0], std::byte{0});
  e.attributes().access = kAllAccess;
  arrive_write(Op::kWriteOnly, 204, data(10), 0, 10);
  EXPECT_TRUE(std::ranges::equal(target.bytes(0, 10), data(10)));
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
  EXPECT_TRUE(e.log.events.empty());
  EXPECT_EQ(e.counter(kDroppedDatagrams), 4u);
}

TEST_F(UcReceive, DropsWritesWhoseLengthIsNotWhatTheySaid) {
  arrive_write(Op::kWriteOnly, 200, data(10), 0, 12);
  arrive_write(Op::kWriteFirst, 201, data(256), 0, 256);
  arrive_write(Op::kWriteFirst, 202, data(256), 0, 300);
  arrive_write(Op::kWriteMiddle, 203, data(256), 0, 0);
  EXPECT_EQ(e.counter(kDroppedDatagrams), 3u);
  EXPECT_EQ(std::ranges::count(target.bytes(256, 512), std::byte{0}), 512);
}

// ---- states, and packets for others

TEST_F(UcReceive, TellsInRtrThatThePeerIsThere) {
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up(IBV_QPS_RTR);
  post_receive();
  arrive(Op::kSendOnly, 200, data(1));
  arrive(Op::kSendOnly, 201, data(1));
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_COMM_EST));
  expect_received(1, 1);
}

TEST_F(UcReceive, TakesNothingThatIsForOthers) {
  post_receive();
  EXPECT_EQ(e.receive(rc_headers(Op::kSendOnly, 200), data(1)), Verdict::kWrongService);
  roce::Headers headers = packet(Op::kSendOnly, 200, data(1));
  headers.pkey = 0x1234;
  EXPECT_EQ(e.receive(headers, data(1)), Verdict::kBadPkey);
  headers.pkey = roce::kDefaultPkey;
  const roce::Packet stray{headers, data(1)};
  EXPECT_EQ(e.qp->on_packet({stray, path_between(ipv4(9), ipv4(1)), 100}, e.now), Verdict::kBadSource);
  EXPECT_EQ(e.qp->on_packet({stray, path_between(ipv4(2), ipv4(9)), 100}, e.now), Verdict::kBadSource);
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_EQ(e.receive(headers, data(1)), Verdict::kNotReady);
  e.qp->enter(IBV_QPS_RESET);
  EXPECT_EQ(e.receive(headers, data(1)), Verdict::kNotReady);
}

TEST_F(UcReceive, FlushesWhatWasPosted) {
  post_receive();
  post_receive();
  arrive(Op::kSendFirst, 200, data(256));
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_EQ(e.received().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(e.received().status, IBV_WC_WR_FLUSH_ERR);
  expect_none_received();
}

TEST_F(UcReceive, ForgetsTheMessageAtHandWhenItIsReset) {
  post_receive();
  arrive(Op::kSendFirst, 200, data(256));
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  post_receive();
  arrive(Op::kSendLast, 200, data(5));
  expect_none_received();
  arrive(Op::kSendOnly, 201, data(5));
  expect_received(2, 5);
}

}  // namespace
}  // namespace verbena::transport
