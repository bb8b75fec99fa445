// SPDX-License-Identifier: Apache-2.0
// ATOMIC WRITE and FLUSH (IBTA volume 1 release 1.5, annex A19), requester and responder.
#include "adapter/memory/region.h"
#include "adapter/queues/work_queue.h"
#include "adapter/transport/support/requester_test.h"
#include "adapter/transport/support/responder_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using Op = roce::Operation;

constexpr auto kFlush = static_cast<ibv_wr_opcode>(queues::kFlushOpcode);

class PlacementResponder : public ResponderTest {
 protected:
  void tune(QpAttributes& attributes) override {
    attributes.access = kAllAccess | memory::kFlushGlobal;
    target.region().access |= memory::kFlushGlobal;
    target.region().publish();
  }

  void atomic_write(uint32_t psn, uint64_t value, uint64_t address, uint32_t rkey, uint32_t length = 8) {
    const auto bytes = std::as_bytes(std::span(&value, 1)).first(std::min(length, 8u));
    roce::Headers headers = request(Op::kAtomicWrite, psn, bytes);
    headers.address = address;
    headers.rkey = rkey;
    headers.dma_length = length;
    EXPECT_EQ(e.receive(headers, bytes), Verdict::kAccepted);
  }
  void atomic_write(uint32_t psn, uint64_t value) {
    atomic_write(psn, value, target.address(), target.key());
  }

  void flush(uint32_t psn, uint8_t placement, uint8_t selectivity, uint64_t address, uint32_t length,
             uint32_t rkey) {
    roce::Headers headers = request(Op::kFlush, psn, {});
    headers.flush_type = placement;
    headers.flush_selectivity = selectivity;
    headers.address = address;
    headers.rkey = rkey;
    headers.dma_length = length;
    EXPECT_EQ(e.receive(headers), Verdict::kAccepted);
  }
  void flush(uint32_t psn) {
    flush(psn, memory::kPlacementGlobal, memory::kSelectRange, target.address(), 100, target.key());
  }

  void expect_empty_response(const SentPacket& packet, uint32_t psn, uint32_t msn) {
    EXPECT_EQ(packet.operation(), Op::kReadResponseOnly);
    EXPECT_EQ(packet.psn(), psn);
    EXPECT_EQ(packet.headers.syndrome, roce::ack_syndrome());
    EXPECT_EQ(packet.headers.msn, msn);
    EXPECT_TRUE(packet.payload.empty());
  }
};

TEST_F(PlacementResponder, WritesAWordAndAnswersWithAnEmptyReadResponse) {
  atomic_write(200, 0x0102030405060708);
  EXPECT_EQ(target.word(0), 0x0102030405060708u);
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 1u);
  expect_empty_response(packets[0], 200, 1);
  EXPECT_EQ(e.qp->next_receive_psn(), roce::Psn(201));
  EXPECT_FALSE(e.qp->has_acknowledgement()) << "the response acknowledges";
}

TEST_F(PlacementResponder, AnswersADuplicateWithoutWritingAgain) {
  atomic_write(200, 1);
  e.transmitted();
  target.word(0) = 99;
  atomic_write(200, 1);
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 1u);
  expect_empty_response(packets[0], 200, 1);
  EXPECT_EQ(target.word(0), 99u);
}

TEST_F(PlacementResponder, DoesNotAnswerAReadForAnAtomicWrite) {
  atomic_write(200, 1);
  e.transmitted();
  read(200, 0, 0);
  expect_silence();
}

TEST_F(PlacementResponder, AnswersAFlushWithAnEmptyReadResponse) {
  flush(200);
  flush(201, memory::kPlacementGlobal, memory::kSelectRegion, 0xdead, 0xffffffff, target.key());
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 2u);
  expect_empty_response(packets[0], 200, 1);
  expect_empty_response(packets[1], 201, 2);
  EXPECT_FALSE(e.qp->has_acknowledgement()) << "the response acknowledges";
}

TEST_F(PlacementResponder, RefusesBadAtomicWrites) {
  Buffer& read_only = e.memory.add(64, IBV_ACCESS_REMOTE_READ);
  struct Case {
    const char* what;
    uint64_t address;
    uint32_t rkey;
    uint32_t length;
    NakCode code;
  };
  const Case cases[] = {
      {"an odd address", target.address(4), target.key(), 8, NakCode::kInvalidRequest},
      {"four bytes", target.address(), target.key(), 4, NakCode::kInvalidRequest},
      {"more bytes than are there", target.address(), target.key(), 16, NakCode::kInvalidRequest},
      {"an unknown key", target.address(), 0xdead, 8, NakCode::kRemoteAccess},
      {"beyond the region", target.address(target.size()), target.key(), 8, NakCode::kRemoteAccess},
      {"memory to be read only", read_only.address(), read_only.key(), 8, NakCode::kRemoteAccess},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    target.word(0) = 5;
    atomic_write(200, 6, c.address, c.rkey, c.length);
    EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
    expect_nak(200, c.code, 0);
    EXPECT_EQ(target.word(0), 5u);
    e.qp->enter(IBV_QPS_RESET);
    e.bring_up(IBV_QPS_RTR);
  }
}

TEST_F(PlacementResponder, RefusesBadFlushes) {
  Buffer& unflushable = e.memory.add(64);
  struct Case {
    const char* what;
    uint8_t placement;
    uint8_t selectivity;
    uint64_t address;
    uint32_t length;
    uint32_t rkey;
    NakCode code;
  };
  const uint64_t at = target.address();
  const Case cases[] = {
      {"no placement", 0, memory::kSelectRange, at, 8, target.key(), NakCode::kInvalidRequest},
      {"an unknown placement", 4, memory::kSelectRange, at, 8, target.key(), NakCode::kInvalidRequest},
      {"a persistence that the QP does not allow", memory::kPlacementPersistent, memory::kSelectRange, at, 8,
       target.key(), NakCode::kInvalidRequest},
      {"an unknown selectivity", memory::kPlacementGlobal, 2, at, 8, target.key(), NakCode::kInvalidRequest},
      {"an unknown key", memory::kPlacementGlobal, memory::kSelectRegion, at, 8, 0xdead,
       NakCode::kRemoteAccess},
      {"a range beyond the region", memory::kPlacementGlobal, memory::kSelectRange, at,
       static_cast<uint32_t>(target.size()) + 1, target.key(), NakCode::kRemoteAccess},
      {"a region not made for it", memory::kPlacementGlobal, memory::kSelectRange, unflushable.address(), 8,
       unflushable.key(), NakCode::kRemoteAccess},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    flush(200, c.placement, c.selectivity, c.address, c.length, c.rkey);
    EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
    expect_nak(200, c.code, 0);
    e.qp->enter(IBV_QPS_RESET);
    e.bring_up(IBV_QPS_RTR);
  }
}

TEST_F(PlacementResponder, RefusesThemWhenTheQueuePairDoesNotAllowThem) {
  e.attributes().access = IBV_ACCESS_LOCAL_WRITE;
  atomic_write(200, 6);
  expect_nak(200, NakCode::kInvalidRequest, 0);
  e.qp->enter(IBV_QPS_RESET);
  e.attributes().access = IBV_ACCESS_LOCAL_WRITE;
  e.bring_up(IBV_QPS_RTR);
  flush(200);
  expect_nak(200, NakCode::kInvalidRequest, 0);
}

TEST_F(PlacementResponder, RefusesMoreAtOnceThanMaxDestRdAtomic) {
  for (uint32_t i = 0; i < 4; ++i) atomic_write(200 + i, i);
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTR);
  flush(204);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
}

class PlacementRequester : public RequesterTest {
 protected:
  void post_flush(uint64_t length, uint8_t placement, uint8_t selectivity) {
    ibv_send_wr wr = request(kFlush, 0);
    wr.num_sge = 0;
    wr.wr.atomic.remote_addr = kRemoteAddress;
    wr.wr.atomic.rkey = kRemoteKey;
    wr.wr.atomic.compare_add = length;
    wr.wr.atomic.swap = uint64_t{selectivity} << 8 | placement;
    ASSERT_TRUE(post_send(*e.qp, wr));
  }
};

TEST_F(PlacementRequester, SendsAWordAndCompletesWithItsResponse) {
  post(IBV_WR_ATOMIC_WRITE, 8);
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].operation(), Op::kAtomicWrite);
  EXPECT_EQ(packets[0].psn(), 100u);
  EXPECT_EQ(packets[0].headers.address, kRemoteAddress);
  EXPECT_EQ(packets[0].headers.rkey, kRemoteKey);
  EXPECT_EQ(packets[0].headers.dma_length, 8u);
  EXPECT_TRUE(packets[0].headers.ack_request);
  EXPECT_TRUE(std::ranges::equal(packets[0].payload, local.bytes(0, 8)));
  acknowledge(100);
  expect_none_sent();
  respond(Op::kReadResponseOnly, 100, {});
  const ibv_wc wc = e.sent();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
}

TEST_F(PlacementRequester, SendsAFlushAndCompletesWithItsResponse) {
  post_flush(5000, memory::kPlacementGlobal, memory::kSelectRange);
  post_flush(0, memory::kPlacementGlobal | memory::kPlacementPersistent, memory::kSelectRegion);
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].operation(), Op::kFlush);
  EXPECT_EQ(packets[0].headers.flush_type, 1);
  EXPECT_EQ(packets[0].headers.flush_selectivity, 0);
  EXPECT_EQ(packets[0].headers.address, kRemoteAddress);
  EXPECT_EQ(packets[0].headers.rkey, kRemoteKey);
  EXPECT_EQ(packets[0].headers.dma_length, 5000u);
  EXPECT_TRUE(packets[0].payload.empty());
  EXPECT_EQ(packets[1].headers.flush_type, 3);
  EXPECT_EQ(packets[1].headers.flush_selectivity, 1);
  respond(Op::kReadResponseOnly, 100, {});
  respond(Op::kReadResponseOnly, 101, {});
  EXPECT_EQ(e.sent().opcode, queues::kFlushCompletion);
  EXPECT_EQ(e.sent().status, IBV_WC_SUCCESS);
}

TEST_F(PlacementRequester, AsksAgainWhenTheResponseIsLost) {
  post(IBV_WR_ATOMIC_WRITE, 8);
  post(IBV_WR_RDMA_WRITE, 8);
  EXPECT_EQ(e.transmitted().size(), 2u);
  acknowledge(101);  // acknowledges the second; the response to the first was lost
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(100));
  respond(Op::kReadResponseOnly, 100, {});
  expect_sent(1);
  expect_sent(2);
}

TEST_F(PlacementRequester, TakesNoOtherResponse) {
  post(IBV_WR_ATOMIC_WRITE, 8);
  e.transmitted();
  respond(Op::kReadResponseOnly, 100, local.bytes(0, 8));
  expect_sent(1, IBV_WC_BAD_RESP_ERR);
}

TEST_F(PlacementRequester, KeepsToMaxRdAtomic) {
  for (int i = 0; i < 6; ++i) post(IBV_WR_ATOMIC_WRITE, 8);
  EXPECT_EQ(e.transmitted().size(), 4u);
  respond(Op::kReadResponseOnly, 100, {});
  EXPECT_EQ(e.transmitted().size(), 1u);
}

TEST_F(PlacementRequester, RefusesWordsOfOtherLengths) {
  post(IBV_WR_ATOMIC_WRITE, 16);
  e.transmitted();
  expect_sent(1, IBV_WC_LOC_LEN_ERR);
}

}  // namespace
}  // namespace verbena::transport
