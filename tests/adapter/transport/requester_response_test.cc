// SPDX-License-Identifier: Apache-2.0
// RDMA READ and the atomics, requester side.
#include "adapter/transport/support/requester_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using Op = roce::Operation;

class RequesterResponses : public RequesterTest {
 protected:
  std::vector<std::byte> data(size_t bytes, uint64_t seed = 9) {
    std::vector<std::byte> all(bytes);
    Random random(seed);
    for (std::byte& b : all) b = static_cast<std::byte>(random.next());
    return all;
  }
};

TEST_F(RequesterResponses, AsksForAReadAndOwnsThePsnsOfItsResponse) {
  post(IBV_WR_RDMA_READ, 600);
  post(IBV_WR_SEND, 0);
  const auto packets = e.transmitted();
  EXPECT_THAT(operations(packets), ElementsAre(Op::kReadRequest, Op::kSendOnly));
  EXPECT_THAT(psns(packets), ElementsAre(100, 103));
  EXPECT_EQ(packets[0].headers.address, kRemoteAddress);
  EXPECT_EQ(packets[0].headers.rkey, kRemoteKey);
  EXPECT_EQ(packets[0].headers.dma_length, 600u);
  EXPECT_TRUE(packets[0].payload.empty());
}

TEST_F(RequesterResponses, ScattersTheResponseAndCompletes) {
  Buffer& other = e.memory.add(1000);
  ibv_sge pieces[] = {other.sge(500, 100), other.sge(0, 0), local.sge(3, 200), other.sge(0, 300)};
  ibv_send_wr wr = request(IBV_WR_RDMA_READ, 0);
  wr.sg_list = pieces;
  wr.num_sge = 4;
  ASSERT_TRUE(post_send(*e.qp, wr));
  const SentPacket read = e.transmitted().at(0);
  const auto answer = data(600);
  respond_read(read, answer);
  const ibv_wc wc = e.sent();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(wc.byte_len, 600u);
  const std::span all(answer);
  EXPECT_TRUE(std::ranges::equal(other.bytes(500, 100), all.first(100)));
  EXPECT_TRUE(std::ranges::equal(local.bytes(3, 200), all.subspan(100, 200)));
  EXPECT_TRUE(std::ranges::equal(other.bytes(0, 300), all.subspan(300)));
}

TEST_F(RequesterResponses, ReadsNothing) {
  post(IBV_WR_RDMA_READ, 0);
  const auto packets = e.transmitted();
  EXPECT_EQ(packets.at(0).headers.dma_length, 0u);
  respond_read(packets[0], {});
  expect_sent(1);
}

TEST_F(RequesterResponses, AsksForALongReadInParts) {
  constexpr uint32_t kLength = 40000;
  post(IBV_WR_RDMA_READ, kLength);
  const auto parts = e.transmitted();
  uint32_t asked = 0;
  for (const SentPacket& part : parts) {
    EXPECT_EQ(part.operation(), Op::kReadRequest);
    EXPECT_EQ(part.psn(), 100 + asked / 256);
    EXPECT_EQ(part.headers.address, kRemoteAddress + asked);
    EXPECT_LE(part.headers.dma_length, 64u * 256);
    asked += part.headers.dma_length;
  }
  EXPECT_EQ(asked, kLength);
  EXPECT_EQ(parts.size(), 3u);
  const auto answer = data(kLength);
  uint32_t given = 0;
  for (const SentPacket& part : parts) {
    expect_none_sent();
    respond_read(part, std::span(answer).subspan(given, part.headers.dma_length));
    given += part.headers.dma_length;
  }
  expect_sent(1);
  EXPECT_TRUE(std::ranges::equal(local.bytes(0, kLength), answer));
}

TEST_F(RequesterResponses, HasNoMoreReadsAndAtomicsOutstandingThanMaxRdAtomic) {
  for (int i = 0; i < 3; ++i) post(IBV_WR_RDMA_READ, 10);
  for (int i = 0; i < 3; ++i) post(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
  post(IBV_WR_SEND, 10);
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 4u) << "max_rd_atomic is 4";
  EXPECT_FALSE(e.qp->has_urgent());
  respond_read(packets[0], data(10));
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kFetchAdd));
  respond_read(packets[1], data(10));
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kFetchAdd, Op::kSendOnly));
}

TEST_F(RequesterResponses, CountsThePartsOfALongReadToo) {
  post(IBV_WR_RDMA_READ, 6 * 64 * 256);
  auto parts = e.transmitted();
  EXPECT_EQ(parts.size(), 4u);
  respond_read(parts[0], data(64 * 256));
  EXPECT_EQ(e.transmitted().size(), 1u);
}

TEST_F(RequesterResponses, TakesAResponseAsAcknowledgementOfAllBeforeIt) {
  post(IBV_WR_SEND, 10);
  post(IBV_WR_RDMA_READ, 10);
  post(IBV_WR_SEND, 10);
  const auto packets = e.transmitted();
  respond_read(packets[1], data(10));
  expect_sent(1);
  expect_sent(2);
  expect_none_sent();
}

TEST_F(RequesterResponses, AsksAgainForWhatIsMissingOfAResponse) {
  post(IBV_WR_RDMA_READ, 1000);
  const SentPacket read = e.transmitted().at(0);
  const auto answer = data(1000);
  respond(Op::kReadResponseFirst, 100, std::span(answer).first(256));
  respond(Op::kReadResponseMiddle, 102, std::span(answer).subspan(512, 256));  // 101 was lost
  const auto packets = e.transmitted();
  ASSERT_THAT(psns(packets), ElementsAre(101));
  EXPECT_EQ(packets[0].headers.address, kRemoteAddress + 256);
  EXPECT_EQ(packets[0].headers.dma_length, 744u);
  EXPECT_EQ(e.counter(kImpliedLosses), 1u);
  respond(Op::kReadResponseLast, 103, std::span(answer).subspan(768));  // still of the first response
  EXPECT_TRUE(e.transmitted().empty()) << "the loss is known already";
  expect_none_sent();
  respond_read(packets[0], std::span(answer).subspan(256));
  expect_sent(1);
  EXPECT_TRUE(std::ranges::equal(local.bytes(0, 1000), answer));
}

TEST_F(RequesterResponses, KeepsToThePartsItHasAskedForBefore) {
  // The peer has saved a response for each request. A request with another range would be no duplicate to it.
  post(IBV_WR_RDMA_READ, 40000);
  const auto parts = e.transmitted();
  respond(Op::kReadResponseFirst, 100, data(256));
  std::vector<SentPacket> again;
  while (e.counter(kLocalAckTimeouts) == 0) {
    e.wait_for_timer();
    again = e.transmitted();
  }
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again[0].psn(), 101u);
  EXPECT_EQ(again[0].headers.dma_length, 63u * 256);
  for (size_t i = 1; i < again.size(); ++i) {
    EXPECT_EQ(again[i].psn(), parts[i].psn());
    EXPECT_EQ(again[i].headers.dma_length, parts[i].headers.dma_length);
  }
}

TEST_F(RequesterResponses, SeesFromALaterAcknowledgementThatAResponseWasLost) {
  post(IBV_WR_RDMA_READ, 10);
  post(IBV_WR_SEND, 10);
  e.transmitted();
  acknowledge(101);
  expect_none_sent();
  const auto packets = e.transmitted();
  EXPECT_THAT(psns(packets), ElementsAre(100));
  respond_read(packets[0], data(10));
  expect_sent(1);
  expect_sent(2);
}

TEST_F(RequesterResponses, PutsAnswersInTheirPlacesWhateverTheirOrder) {
  post(IBV_WR_RDMA_READ, 600);
  post(IBV_WR_SEND, 10);
  post(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
  e.transmitted();
  const auto answer = data(600);
  respond_atomic(104, 4711);
  respond(Op::kReadResponseLast, 102, std::span(answer).subspan(512));
  respond(Op::kReadResponseMiddle, 101, std::span(answer).subspan(256, 256));
  expect_none_sent();
  respond(Op::kReadResponseFirst, 100, std::span(answer).first(256));
  for (uint64_t id = 1; id <= 3; ++id) expect_sent(id);
  EXPECT_FALSE(e.qp->has_outstanding());
}

TEST_F(RequesterResponses, IgnoresAResponseThatComesTwice) {
  post(IBV_WR_RDMA_READ, 10);
  post(IBV_WR_RDMA_READ, 10);
  const auto packets = e.transmitted();
  const auto answer = data(10);
  respond_read(packets[0], answer);
  respond_read(packets[0], data(10, 77));
  expect_sent(1);
  expect_none_sent();
  EXPECT_TRUE(std::ranges::equal(local.bytes(0, 10), answer));
}

TEST_F(RequesterResponses, FailsAReadWhoseResponseHasAnotherLength) {
  post(IBV_WR_RDMA_READ, 600);
  e.transmitted();
  respond(Op::kReadResponseFirst, 100, data(252));
  expect_sent(1, IBV_WC_BAD_RESP_ERR);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
}

TEST_F(RequesterResponses, FailsAReadWhoseResponseEndsTooEarly) {
  post(IBV_WR_RDMA_READ, 600);
  e.transmitted();
  respond(Op::kReadResponseOnly, 100, data(256));
  expect_sent(1, IBV_WC_BAD_RESP_ERR);
}

TEST_F(RequesterResponses, IgnoresAResponseToWhatIsNoRead) {
  post(IBV_WR_SEND, 10);
  e.transmitted();
  respond(Op::kReadResponseOnly, 100, data(10));
  respond_atomic(100, 1);
  expect_none_sent();
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
}

TEST_F(RequesterResponses, IgnoresAReadResponseToAnAtomicAndTheOtherWayRound) {
  post(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
  e.transmitted();
  respond(Op::kReadResponseOnly, 100, data(8));
  expect_none_sent();
  respond_atomic(100, 1);
  expect_sent(1);
  post(IBV_WR_RDMA_READ, 8);
  e.transmitted();
  respond_atomic(101, 1);
  expect_none_sent();
}

TEST_F(RequesterResponses, SendsAnAtomicAndStoresTheValueBefore) {
  ibv_send_wr wr = request(IBV_WR_ATOMIC_CMP_AND_SWP, 8);
  wr.wr.atomic.compare_add = 0x1111;
  wr.wr.atomic.swap = 0x2222;
  ASSERT_TRUE(post_send(*e.qp, wr));
  wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
  wr.sg_list->addr += 8;
  wr.wr.atomic.compare_add = 0x3333;
  ASSERT_TRUE(post_send(*e.qp, wr));
  const auto packets = e.transmitted();
  ASSERT_THAT(operations(packets), ElementsAre(Op::kCompareSwap, Op::kFetchAdd));
  EXPECT_EQ(packets[0].headers.address, kRemoteAddress);
  EXPECT_EQ(packets[0].headers.rkey, kRemoteKey);
  EXPECT_EQ(packets[0].headers.compare, 0x1111u);
  EXPECT_EQ(packets[0].headers.swap_add, 0x2222u);
  EXPECT_EQ(packets[1].headers.swap_add, 0x3333u);
  respond_atomic(100, 0xaaaa);
  respond_atomic(101, 0xbbbb);
  EXPECT_EQ(e.sent().opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(e.sent().opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(local.word(0), 0xaaaau);
  EXPECT_EQ(local.word(1), 0xbbbbu);
}

TEST_F(RequesterResponses, HoldsAFencedRequestUntilReadsAndAtomicsBeforeItAreDone) {
  post(IBV_WR_RDMA_READ, 10);
  post(IBV_WR_SEND, 300, IBV_SEND_FENCE);
  auto packets = e.transmitted();
  ASSERT_THAT(operations(packets), ElementsAre(Op::kReadRequest));
  EXPECT_FALSE(e.qp->has_urgent());
  respond_read(packets[0], data(10));
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kSendFirst, Op::kSendLast));
}

TEST_F(RequesterResponses, DoesNotHoldAFencedRequestForSendsAndWrites) {
  post(IBV_WR_SEND, 10);
  post(IBV_WR_RDMA_WRITE, 10, IBV_SEND_FENCE);
  EXPECT_EQ(e.transmitted().size(), 2u);
}

TEST_F(RequesterResponses, HoldsAFencedReadToo) {
  post(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
  post(IBV_WR_RDMA_READ, 40000, IBV_SEND_FENCE);
  ASSERT_EQ(e.transmitted().size(), 1u);
  respond_atomic(100, 0);
  EXPECT_EQ(e.transmitted().size(), 3u) << "its own parts do not hold each other";
}

}  // namespace
}  // namespace verbena::transport
