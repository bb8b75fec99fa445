// SPDX-License-Identifier: Apache-2.0
// Requests that the requester carries out itself in the peer's memory: which requests, and when.
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "adapter/transport/support/requester_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Op = roce::Operation;

// A peer's memory, filled with one byte value.
class FakeAccess final : public DirectAccess {
 public:
  bool is_best_for(const Run& run) override {
    asked_about = run;
    return is_best;
  }
  bool read(const PeerRange& range, uint32_t offset, uint32_t bytes,
            std::span<const ConstBytes> to) override {
    EXPECT_LE(offset + uint64_t{bytes}, range.length);
    last = range;
    reads.push_back(bytes);
    if (!allows) return false;
    for (const ConstBytes piece : to) std::memset(const_cast<std::byte*>(piece.data()), kByte, piece.size());
    return true;
  }
  bool write(const PeerRange& range, uint32_t offset, uint32_t bytes,
             std::span<const ConstBytes> from) override {
    EXPECT_EQ(offset, written.size());
    EXPECT_LE(offset + uint64_t{bytes}, range.length);
    last = range;
    if (!allows) return false;
    for (const ConstBytes piece : from) written.insert(written.end(), piece.begin(), piece.end());
    if (written.size() == range.length) written_whole.push_back(std::exchange(written, {}));
    return true;
  }
  std::optional<uint64_t> change(const PeerRange& range, const AtomicChange& asked) override {
    EXPECT_EQ(range.length, 8u);
    last = range;
    if (!allows) return std::nullopt;
    changes.push_back(asked);
    return kBefore;
  }

  static constexpr int kByte = 0x5a;
  static constexpr uint64_t kBefore = 0x1122'3344'5566'7788;
  bool allows = true;
  bool is_best = false;
  Run asked_about{};
  PeerRange last;
  std::vector<uint32_t> reads;
  std::vector<std::byte> written;  // of a WRITE that is not complete yet
  std::vector<std::vector<std::byte>> written_whole;
  std::vector<AtomicChange> changes;
};

class RequesterDirect : public RequesterTest {
 protected:
  void tune(QpAttributes&) override { e.routes.route.direct = &access; }
  // Sends a SEND and gets its acknowledgement. From then on both ends know each other's process.
  void meet() {
    post(IBV_WR_SEND, 8);
    EXPECT_THAT(psns(e.transmitted()), ElementsAre(100));
    acknowledge(100);
    expect_sent(1);
  }

  FakeAccess access;
};

TEST_F(RequesterDirect, ReadsWithoutAPacket) {
  meet();
  post(IBV_WR_RDMA_READ, 600);
  EXPECT_THAT(e.transmitted(), IsEmpty());
  const ibv_wc wc = e.sent();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(wc.byte_len, 600u);
  EXPECT_EQ(local.bytes(0, 1)[0], std::byte{FakeAccess::kByte});
  EXPECT_EQ(local.bytes(599, 1)[0], std::byte{FakeAccess::kByte});
  EXPECT_EQ(access.last.connection->from.value(), 0x11u);
  EXPECT_EQ(access.last.connection->to.value(), 0x22u);
  EXPECT_EQ(access.last.connection->first_psn.value(), 100u);
  EXPECT_EQ(access.last.rkey, kRemoteKey);
  EXPECT_EQ(access.last.address, kRemoteAddress);
  EXPECT_EQ(access.last.length, 600u);
  EXPECT_EQ(e.counter(kReceivedBytes), 600u);
}

TEST_F(RequesterDirect, ItOwnsNoPsns) {
  meet();
  post(IBV_WR_RDMA_READ, 600);
  post(IBV_WR_SEND, 8);
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(101));
  expect_sent(2);
  acknowledge(101);
  expect_sent(3);
}

TEST_F(RequesterDirect, Writes) {
  meet();
  for (const uint32_t bytes : {100u, 5000u}) {
    post(IBV_WR_RDMA_WRITE, bytes);
    EXPECT_THAT(e.transmitted(), IsEmpty());
    expect_sent(bytes == 100 ? 2 : 3);
    EXPECT_EQ(access.written_whole.back().size(), bytes);
  }
  EXPECT_EQ(e.counter(kSentBytes), 8u + 100 + 5000);
}

TEST_F(RequesterDirect, Adds) {
  meet();
  ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
  wr.wr.atomic.compare_add = 5;
  ASSERT_TRUE(post_send(*e.qp, wr));
  EXPECT_THAT(e.transmitted(), IsEmpty());
  EXPECT_EQ(e.sent().opcode, IBV_WC_FETCH_ADD);
  ASSERT_EQ(access.changes.size(), 1u);
  EXPECT_FALSE(access.changes[0].compares);
  EXPECT_EQ(access.changes[0].swap_add, 5u);
  EXPECT_EQ(access.last.rkey, kRemoteKey);
  EXPECT_EQ(access.last.address, kRemoteAddress);
  EXPECT_EQ(std::memcmp(local.bytes(0, 8).data(), &FakeAccess::kBefore, 8), 0);
}

TEST_F(RequesterDirect, ComparesAndSwaps) {
  meet();
  ibv_send_wr wr = request(IBV_WR_ATOMIC_CMP_AND_SWP, 8);
  wr.wr.atomic.compare_add = 5;
  wr.wr.atomic.swap = 6;
  ASSERT_TRUE(post_send(*e.qp, wr));
  EXPECT_THAT(e.transmitted(), IsEmpty());
  EXPECT_EQ(e.sent().opcode, IBV_WC_COMP_SWAP);
  ASSERT_EQ(access.changes.size(), 1u);
  EXPECT_TRUE(access.changes[0].compares);
  EXPECT_EQ(access.changes[0].compare, 5u);
  EXPECT_EQ(access.changes[0].swap_add, 6u);
}

TEST_F(RequesterDirect, ExecutesAnAtomicWithoutAPlaceForItsResultAsAPeerWould) {
  meet();
  post_with_key(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0x1234);
  EXPECT_THAT(e.transmitted(), IsEmpty());
  expect_sent(2, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(access.changes.size(), 1u);
}

TEST_F(RequesterDirect, AnAtomicThatIsDeclinedGoesByAPacket) {
  meet();
  access.allows = false;
  post(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kFetchAdd));
  respond_atomic(101, 1);
  expect_sent(2);
}

TEST_F(RequesterDirect, APeerThatHasNotAnsweredIsSentPackets) {
  post(IBV_WR_RDMA_READ, 100);
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kReadRequest));
  EXPECT_THAT(access.reads, IsEmpty());
}

TEST_F(RequesterDirect, NothingThatIsUnderWayIsOvertaken) {
  meet();
  post(IBV_WR_SEND, 8);
  post(IBV_WR_RDMA_READ, 8);
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kSendOnly, Op::kReadRequest));
  post(IBV_WR_RDMA_WRITE, 8);
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kWriteOnly));
  EXPECT_THAT(access.reads, IsEmpty());
  EXPECT_THAT(access.written_whole, IsEmpty());
  acknowledge(101);
  respond(Op::kReadResponseOnly, 102, std::vector<std::byte>(8));
  acknowledge(103);
  for (const uint64_t id : {2, 3, 4}) expect_sent(id);
  post(IBV_WR_RDMA_READ, 8);
  EXPECT_THAT(e.transmitted(), IsEmpty());
  expect_sent(5);
}

TEST_F(RequesterDirect, WhatIsDeclinedGoesByPackets) {
  meet();
  access.allows = false;
  post(IBV_WR_RDMA_READ, 8);
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kReadRequest));
  respond(Op::kReadResponseOnly, 101, std::vector<std::byte>(8));
  expect_sent(2);
  post(IBV_WR_RDMA_WRITE, 8);
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kWriteOnly));
  nak(102, NakCode::kRemoteAccess);
  expect_sent(3, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(RequesterDirect, WhatTakesAReceiveRequestIsNotTried) {
  meet();
  post(IBV_WR_RDMA_READ, 0);
  respond_read({e.transmitted().at(0)}, {});
  post(IBV_WR_RDMA_WRITE_WITH_IMM, 8);
  post(IBV_WR_SEND, 8);
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kWriteOnlyImmediate, Op::kSendOnly));
  EXPECT_THAT(access.reads, IsEmpty());
  EXPECT_THAT(access.written_whole, IsEmpty());
}

// Other QPs get their turn between the parts.
TEST_F(RequesterDirect, ALongReadIsDoneInParts) {
  Buffer& large = e.memory.add(3 << 20);
  meet();
  const auto post_large = [&] {
    ibv_sge sge = large.sge(0, (2 << 20) + 5);
    ibv_send_wr wr = request(IBV_WR_RDMA_READ, 0);
    wr.sg_list = &sge;
    ASSERT_TRUE(post_send(*e.qp, wr));
  };
  post_large();
  EXPECT_EQ(e.transmit(256), TransmitResult::kMore);
  EXPECT_THAT(access.reads, ElementsAre(1u << 20));
  expect_none_sent();
  EXPECT_EQ(e.transmit(256), TransmitResult::kMore);
  EXPECT_EQ(e.transmit(256), TransmitResult::kIdle);
  EXPECT_THAT(access.reads, ElementsAre(1u << 20, 1u << 20, 5u));
  expect_sent(2);
}

TEST_F(RequesterDirect, ALongReadThatIsDeclinedInTheMidstGoesByPacketsAsAWhole) {
  Buffer& large = e.memory.add(2 << 20);
  meet();
  ibv_sge sge = large.sge(0, 2 << 20);
  ibv_send_wr wr = request(IBV_WR_RDMA_READ, 0);
  wr.sg_list = &sge;
  ASSERT_TRUE(post_send(*e.qp, wr));
  EXPECT_EQ(e.transmit(256), TransmitResult::kMore);
  access.allows = false;
  const auto packets = e.transmitted();
  ASSERT_FALSE(packets.empty());
  EXPECT_EQ(packets[0].operation(), Op::kReadRequest);
  EXPECT_EQ(packets[0].headers.address, kRemoteAddress);
}

TEST_F(RequesterDirect, ALongWriteIsDoneInParts) {
  Buffer& large = e.memory.add(3 << 20);
  meet();
  ibv_sge sge = large.sge(0, (2 << 20) + 5);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 0);
  wr.sg_list = &sge;
  ASSERT_TRUE(post_send(*e.qp, wr));
  EXPECT_EQ(e.transmit(256), TransmitResult::kMore);
  EXPECT_EQ(access.written.size(), 1u << 20);
  expect_none_sent();
  EXPECT_EQ(e.transmit(256), TransmitResult::kMore);
  EXPECT_EQ(e.transmit(256), TransmitResult::kIdle);
  expect_sent(2);
  ASSERT_EQ(access.written_whole.size(), 1u);
  EXPECT_EQ(access.written_whole[0].size(), (2u << 20) + 5);
}

// ---- requests that follow each other without a pause

class RequesterDirectStream : public RequesterDirect {
 protected:
  // Keeps two requests outstanding: for each answer, posts one more. Returns the number of packets until a
  // request is carried out directly, at most `most`.
  int packets_until_direct(int most) {
    int packets = 0;
    bool asked = false;
    post(IBV_WR_SEND, 8);
    post(IBV_WR_RDMA_WRITE, 8);
    for (uint32_t answered = 101; packets < most; ++answered) {
      const auto sent = e.transmitted();
      if (!access.written_whole.empty()) break;
      packets += static_cast<int>(sent.size());
      if (!sent.empty()) asked = sent.back().headers.ack_request;
      EXPECT_TRUE(!sent.empty() || asked) << "who is to answer?";
      acknowledge(answered);
      post(IBV_WR_RDMA_WRITE, 8);
    }
    return packets;
  }
};

TEST_F(RequesterDirectStream, PausesNowAndThenToGoDirect) {
  meet();
  access.is_best = true;
  EXPECT_LT(packets_until_direct(500), 100);
  EXPECT_EQ(access.asked_about.rkey, kRemoteKey);
  EXPECT_EQ(access.asked_about.bytes, 64u * 8);
  EXPECT_EQ(access.asked_about.length, 8u);
  EXPECT_FALSE(access.asked_about.is_read);
  // All requests posted by then are carried out directly, too.
  EXPECT_THAT(e.transmitted(), IsEmpty());
}

TEST_F(RequesterDirectStream, DoesNotPauseForNothing) {
  meet();
  EXPECT_EQ(packets_until_direct(500), 500);
}

// Data are written and then announced. Waiting each time would cost more than packets do.
TEST_F(RequesterDirectStream, DoesNotPauseForOneOfMany) {
  meet();
  access.is_best = true;
  post(IBV_WR_SEND, 8);
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(101));
  for (uint32_t psn = 102; psn < 500; psn += 2) {
    post(IBV_WR_RDMA_WRITE, 8);
    post(IBV_WR_SEND, 8);
    EXPECT_THAT(psns(e.transmitted()), ElementsAre(psn, psn + 1));
    acknowledge(psn);
  }
  EXPECT_THAT(access.written_whole, IsEmpty());
}

TEST_F(RequesterDirect, ReadsByPacketsIfTheLocalKeyDoesNotFit) {
  meet();
  post_with_key(IBV_WR_RDMA_READ, 8, 0x1234);
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 1u);
  respond_read(packets[0], local.bytes(0, 8));
  expect_sent(2, IBV_WC_LOC_PROT_ERR);
  EXPECT_THAT(access.reads, IsEmpty());
}

TEST_F(RequesterDirect, AfterAResetThePeerIsToAnswerAgain) {
  meet();
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  post(IBV_WR_RDMA_READ, 100);
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kReadRequest));
  EXPECT_THAT(access.reads, IsEmpty());
}

TEST_F(RequesterDirect, InADrainedQueueNothingBegins) {
  meet();
  e.qp->enter(IBV_QPS_SQD);
  post(IBV_WR_RDMA_READ, 100);
  EXPECT_THAT(e.transmitted(), IsEmpty());
  EXPECT_THAT(access.reads, IsEmpty());
  e.qp->enter(IBV_QPS_RTS);
  e.transmit();
  expect_sent(2);
}

}  // namespace
}  // namespace verbena::transport
