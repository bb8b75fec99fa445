// SPDX-License-Identifier: Apache-2.0
// The MIDDLE packets of a long message, which are sent as a train: which packets, and that they are the same
// as when sent one by one.
#include "adapter/transport/support/requester_repair.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Op = roce::Operation;

// A requester whose next PSN is 101, with MTU 256.
class Train : public RequesterRepair {
 protected:
  void SetUp() override {
    RequesterRepair::SetUp();
    e.sink.trains.clear();
  }
  // Posts a message of the same length whose memory is in two parts.
  void post_in_two(ibv_wr_opcode opcode, uint32_t length) {
    ibv_send_wr wr = request(opcode, length);
    ibv_sge parts[2] = {local.sge(0, 100), local.sge(100, length - 100)};
    wr.sg_list = parts;
    wr.num_sge = 2;
    ASSERT_TRUE(post_send(*e.qp, wr));
  }
  // Sends a message of six packets, PSNs 101 to 106.
  void send_one_that_keeps_a_block() {
    post(IBV_WR_SEND, 6 * 256);
    e.transmitted();
    EXPECT_EQ(*e.sink.block, 1u);
  }
  // Returns all packets sent; acknowledges each one that requests it.
  std::vector<SentPacket> all_sent() {
    std::vector<SentPacket> all;
    for (auto some = e.transmitted(); !some.empty(); some = e.transmitted()) {
      all.insert(all.end(), some.begin(), some.end());
      if (all.back().asks()) acknowledge(all.back().psn());
    }
    return all;
  }
};

TEST_F(Train, IsOfTheMiddlesOfAMessage) {
  post(IBV_WR_RDMA_WRITE, 6 * 256);
  const auto packets = e.transmitted();
  EXPECT_THAT(e.sink.trains, ElementsAre(4));
  EXPECT_THAT(operations(packets), ElementsAre(Op::kWriteFirst, Op::kWriteMiddle, Op::kWriteMiddle,
                                               Op::kWriteMiddle, Op::kWriteMiddle, Op::kWriteLast));
  EXPECT_THAT(psns(packets), ElementsAre(101, 102, 103, 104, 105, 106));
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(std::ranges::equal(packets[i].payload, local.bytes(i * 256, 256))) << i;
    EXPECT_EQ(packets[i].asks(), i == 5) << i;
  }
  EXPECT_EQ(e.counter(kSentPackets), 7u);
}

// The First of a WRITE is longer, so it has a super-packet of its own. That has room for one more packet.
TEST_F(Train, LeavesOneToTheFirstOfAWriteWhereThatSavesASuperPacket) {
  post(IBV_WR_RDMA_WRITE, 66 * 256);
  e.transmitted();
  EXPECT_THAT(e.sink.following, ElementsAre(102));
  EXPECT_THAT(e.sink.trains, ElementsAre(62));
  acknowledge(166);
  e.sink.trains.clear();
  post(IBV_WR_RDMA_WRITE, 67 * 256);
  post(IBV_WR_SEND, 66 * 256);
  e.transmitted();
  EXPECT_THAT(e.sink.following, ElementsAre(102));
  EXPECT_EQ(e.sink.trains.front(), 63u);
}

TEST_F(Train, IsNotOfOneOrNone) {
  for (const uint32_t packets : {1, 2, 3}) {
    post(IBV_WR_SEND, packets * 256);
    all_sent();
  }
  EXPECT_THAT(e.sink.trains, IsEmpty());
}

TEST_F(Train, IsNotOfSeveralPartsOfMemory) {
  post_in_two(IBV_WR_SEND, 6 * 256);
  EXPECT_EQ(e.transmitted().size(), 6u);
  EXPECT_THAT(e.sink.trains, IsEmpty());
}

// The window, the pacing and the acknowledgement requests are the same as for packets sent one by one.
TEST_F(Train, LooksAsIfItsPacketsHadGoneOneByOne) {
  size_t most = 0;
  for (const uint32_t length : {4 * 256, 5 * 256 - 1, 17 * 256 + 3, 4000, 8192, 8000}) {
    post_in_two(IBV_WR_RDMA_WRITE, length);
    const auto one_by_one = all_sent();
    e.sink.trains.clear();
    post(IBV_WR_RDMA_WRITE, length);
    const auto together = all_sent();
    most = std::max(most, e.sink.trains.size());
    ASSERT_EQ(together.size(), one_by_one.size()) << length;
    const uint32_t later = together[0].psn() - one_by_one[0].psn();
    for (size_t i = 0; i < together.size(); ++i) {
      EXPECT_EQ(together[i].operation(), one_by_one[i].operation()) << length << ", packet " << i;
      EXPECT_EQ(together[i].psn(), one_by_one[i].psn() + later) << length << ", packet " << i;
      EXPECT_EQ(together[i].asks(), one_by_one[i].asks()) << length << ", packet " << i;
      EXPECT_EQ(together[i].payload, one_by_one[i].payload) << length << ", packet " << i;
    }
  }
  EXPECT_GT(most, 0u);
}

TEST_F(Train, GoesOnWhereTheRouteHadNoMoreRoom) {
  e.sink.room = 4;
  post(IBV_WR_SEND, 10 * 256);
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(101, 102, 103, 104));
  e.sink.room = -1;
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(105, 106, 107, 108, 109, 110));
  acknowledge(110);
  expect_sent(2);
}

TEST_F(Train, KeepsItsBlockUntilItIsAcknowledged) {
  send_one_that_keeps_a_block();
  acknowledge(104);
  EXPECT_EQ(*e.sink.block, 1u);
  acknowledge(105);
  EXPECT_EQ(*e.sink.block, 1u) << "the message's last packet lies there, too";
  acknowledge(106);
  EXPECT_EQ(*e.sink.block, 0u);
}

TEST_F(Train, KeepsItsBlockWhileAPartOfItIsMissing) {
  send_one_that_keeps_a_block();
  tell(103, {{104, 107}});
  EXPECT_EQ(*e.sink.block, 1u);
  acknowledge(106);
  EXPECT_EQ(*e.sink.block, 0u);
}

TEST_F(Train, KeepsNoBlockOfAQueuePairThatFails) {
  send_one_that_keeps_a_block();
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_EQ(*e.sink.block, 0u);
}

TEST_F(Train, KeepsNoBlockOfAQueuePairThatIsReset) {
  send_one_that_keeps_a_block();
  e.qp->enter(IBV_QPS_RESET);
  EXPECT_EQ(*e.sink.block, 0u);
}

TEST_F(Train, IsNotOfWhatIsSentAgain) {
  post(IBV_WR_SEND, 10 * 256);
  e.transmitted();
  e.sink.trains.clear();
  nak(103, NakCode::kSequenceError);
  const auto again = sent_again();
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again[0], 103u);
  EXPECT_THAT(e.sink.trains, IsEmpty());
}

}  // namespace
}  // namespace verbena::transport
