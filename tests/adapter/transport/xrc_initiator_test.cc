// SPDX-License-Identifier: Apache-2.0
// XRC initiator QPs: the packets of each request name the peer's shared receive queue.
#include <gmock/gmock.h>

#include "adapter/transport/support/endpoint.h"
#include "wire/roce/aeth.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using Op = roce::Operation;

class XrcInitiatorTest : public testing::Test {
 protected:
  void SetUp() override { e.bring_up(); }

  void post(ibv_wr_opcode opcode, uint32_t length, uint32_t queue_number) {
    ibv_sge sge = local.sge(0, length);
    ibv_send_wr wr{};
    wr.wr_id = next_id_++;
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.qp_type.xrc.remote_srqn = queue_number;
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic.remote_addr = 0x10000;
      wr.wr.atomic.rkey = 0xabcd;
    } else {
      wr.wr.rdma.remote_addr = 0x10000;
      wr.wr.rdma.rkey = 0xabcd;
    }
    ASSERT_TRUE(post_send(*e.qp, wr));
  }
  static roce::Headers answer(Op operation, uint32_t psn, uint8_t syndrome = roce::ack_syndrome()) {
    roce::Headers headers = headers_of(roce::Service::kXrc, operation, psn);
    headers.syndrome = syndrome;
    return headers;
  }

  Endpoint<XrcInitiator> e{{.recv_requests = 0}};
  Buffer& local = e.memory.add(1 << 16);

 private:
  uint64_t next_id_ = 1;
};

TEST_F(XrcInitiatorTest, NamesTheQueueInEveryPacketOfARequest) {
  struct Case {
    ibv_wr_opcode opcode;
    uint32_t length;
    std::vector<Op> packets;
  };
  const Case cases[] = {
      {IBV_WR_SEND, 600, {Op::kSendFirst, Op::kSendMiddle, Op::kSendLast}},
      {IBV_WR_SEND_WITH_IMM, 300, {Op::kSendFirst, Op::kSendLastImmediate}},
      {IBV_WR_SEND, 1, {Op::kSendOnly}},
      {IBV_WR_RDMA_WRITE, 600, {Op::kWriteFirst, Op::kWriteMiddle, Op::kWriteLast}},
      {IBV_WR_RDMA_WRITE_WITH_IMM, 8, {Op::kWriteOnlyImmediate}},
      {IBV_WR_RDMA_READ, 600, {Op::kReadRequest}},
      {IBV_WR_ATOMIC_CMP_AND_SWP, 8, {Op::kCompareSwap}},
      {IBV_WR_ATOMIC_FETCH_AND_ADD, 8, {Op::kFetchAdd}},
  };
  uint32_t number = 0x123450;
  for (const Case& c : cases) {
    SCOPED_TRACE(static_cast<int>(c.opcode));
    e.qp->enter(IBV_QPS_RESET);
    e.bring_up();
    post(c.opcode, c.length, ++number);
    const auto packets = e.transmitted();
    ASSERT_EQ(packets.size(), c.packets.size());
    for (size_t i = 0; i < packets.size(); ++i) {
      EXPECT_EQ(packets[i].operation(), c.packets[i]);
      EXPECT_EQ(packets[i].headers.service(), roce::Service::kXrc);
      EXPECT_TRUE(packets[i].headers.info().has(roce::kXrceth));
      EXPECT_EQ(packets[i].headers.xrc_srq, number);
    }
  }
}

TEST_F(XrcInitiatorTest, NamesAnotherQueueWithTheNextRequest) {
  post(IBV_WR_SEND, 300, 7);
  post(IBV_WR_SEND, 1, 8);
  std::vector<uint32_t> numbers;
  for (const SentPacket& p : e.transmitted()) numbers.push_back(p.headers.xrc_srq);
  EXPECT_THAT(numbers, ElementsAre(7, 7, 8));
}

TEST_F(XrcInitiatorTest, NamesTheSameQueuesAgainAfterALoss) {
  post(IBV_WR_SEND, 300, 7);
  post(IBV_WR_SEND, 1, 8);
  e.transmitted();
  e.receive(answer(Op::kAcknowledge, 100, roce::nak_syndrome(roce::NakCode::kSequenceError)));
  std::vector<uint32_t> numbers;
  for (const SentPacket& p : e.transmitted()) numbers.push_back(p.headers.xrc_srq);
  EXPECT_THAT(numbers, ElementsAre(7, 7, 8));
}

TEST_F(XrcInitiatorTest, CompletesWhatIsAcknowledged) {
  post(IBV_WR_SEND, 300, 7);
  post(IBV_WR_SEND, 1, 8);
  e.transmitted();
  e.receive(answer(Op::kAcknowledge, 102));
  EXPECT_EQ(e.sent().wr_id, 1u);
  EXPECT_EQ(e.sent().wr_id, 2u);
}

TEST_F(XrcInitiatorTest, ReadsAndCounts) {
  post(IBV_WR_RDMA_READ, 8, 7);
  post(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 7);
  e.transmitted();
  const uint64_t word = 0x1122334455667788;
  e.receive(answer(Op::kReadResponseOnly, 100), std::as_bytes(std::span(&word, 1)));
  EXPECT_EQ(local.word(0), word);
  roce::Headers headers = answer(Op::kAtomicAcknowledge, 101);
  headers.atomic_original = 5;
  e.receive(headers);
  EXPECT_EQ(local.word(0), 5u);
  EXPECT_EQ(e.sent().opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(e.sent().opcode, IBV_WC_FETCH_ADD);
}

TEST_F(XrcInitiatorTest, FailsWhenItIsRefused) {
  post(IBV_WR_SEND, 1, 7);
  e.transmitted();
  e.receive(answer(Op::kAcknowledge, 100, roce::nak_syndrome(roce::NakCode::kInvalidRequest)));
  EXPECT_EQ(e.sent().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
}

TEST_F(XrcInitiatorTest, WaitsWhenThePeersQueueIsEmpty) {
  post(IBV_WR_SEND, 1, 7);
  e.transmitted();
  e.receive(answer(Op::kAcknowledge, 100, roce::rnr_syndrome(12)));
  EXPECT_TRUE(e.transmitted().empty());
  e.wait_for_timer();
  EXPECT_EQ(e.transmitted().size(), 1u);
}

TEST_F(XrcInitiatorTest, IsDeafToRequests) {
  const std::byte payload[4] = {};
  for (const Op operation : {Op::kSendOnly, Op::kWriteOnly, Op::kReadRequest, Op::kFetchAdd}) {
    EXPECT_EQ(e.receive(headers_of(roce::Service::kXrc, operation, 200), payload), Verdict::kWrongService);
  }
  EXPECT_TRUE(e.transmitted().empty());
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
  EXPECT_TRUE(e.log.events.empty());
}

TEST_F(XrcInitiatorTest, TakesNoAnswersOfAnotherService) {
  post(IBV_WR_SEND, 1, 7);
  e.transmitted();
  roce::Headers headers = rc_headers(Op::kAcknowledge, 100);
  headers.syndrome = roce::ack_syndrome();
  EXPECT_EQ(e.receive(headers), Verdict::kWrongService);
  EXPECT_TRUE(e.send_cq->empty());
}

}  // namespace
}  // namespace verbena::transport
