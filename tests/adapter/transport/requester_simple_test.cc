// SPDX-License-Identifier: Apache-2.0
// Requests of one packet that are sent at once: which requests, and that the packets are the same as
// otherwise.
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "adapter/transport/support/requester_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Op = roce::Operation;

class SendingAtOnce : public RequesterTest {
 protected:
  void SetUp() override {
    e.routes.route.traits = kMemoryTraits;
    RequesterTest::SetUp();
  }
  bool send_at_once() { return e.qp->send_at_once(e.now); }
  std::vector<Op> sent() {
    std::vector<Op> all;
    while (!e.sink.packets.empty()) all.push_back(e.sink.take().operation());
    return all;
  }
};

TEST_F(SendingAtOnce, TakesWhatIsOnePacket) {
  post(IBV_WR_SEND, 256);
  post(IBV_WR_SEND_WITH_IMM, 8, IBV_SEND_INLINE);
  post(IBV_WR_SEND, 0);
  EXPECT_TRUE(send_at_once());
  EXPECT_THAT(sent(), ElementsAre(Op::kSendOnly, Op::kSendOnlyImmediate, Op::kSendOnly));
  EXPECT_NE(e.qp->deadline(), kNever);
  EXPECT_THAT(e.transmitted(), IsEmpty());
}

TEST_F(SendingAtOnce, LeavesTheRestFromTheFirstThatIsMore) {
  post(IBV_WR_SEND, 1);
  post(IBV_WR_SEND_WITH_IMM, 257);
  post(IBV_WR_SEND, 1);
  EXPECT_FALSE(send_at_once());
  EXPECT_THAT(sent(), ElementsAre(Op::kSendOnly));
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kSendOnlyImmediate, Op::kSendOnly));
}

// Packets that travel as one use the PSNs of all of them. One acknowledgement of the last completes both
// requests.
TEST_F(SendingAtOnce, TakesSomePacketsThatAreJoined) {
  const roce::Psn first = e.qp->next_send_psn();
  post(IBV_WR_SEND, 600);
  post(IBV_WR_SEND, 1);
  EXPECT_TRUE(send_at_once());
  EXPECT_THAT(sent(), ElementsAre(Op::kSendOnly, Op::kSendOnly));
  EXPECT_EQ(e.qp->next_send_psn(), first + 4);
  EXPECT_EQ(e.counter(kSentPackets), 4u);
  acknowledge((first + 2).value());
  EXPECT_EQ(e.sent().status, IBV_WC_SUCCESS);
  expect_none_sent();
  acknowledge((first + 3).value());
  EXPECT_EQ(e.sent().status, IBV_WC_SUCCESS);
}

// An acknowledgement of the first packet completes nothing: the message completes with its last packet.
TEST_F(SendingAtOnce, JoinedPacketsMayBeAcknowledgedOneByOne) {
  const roce::Psn first = e.qp->next_send_psn();
  post(IBV_WR_SEND, 600);
  EXPECT_TRUE(send_at_once());
  acknowledge(first.value());
  expect_none_sent();
  acknowledge((first + 2).value());
  EXPECT_EQ(e.sent().status, IBV_WC_SUCCESS);
}

TEST_F(SendingAtOnce, TakesAnAcknowledgementAlong) {
  ibv_sge sge = local.sge(0, 64);
  ibv_recv_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  post_recv(*e.qp, wr);
  roce::Headers headers = rc_headers(Op::kSendOnly, 200);
  headers.ack_request = true;
  e.receive(headers);
  post(IBV_WR_SEND, 8);
  EXPECT_TRUE(send_at_once());
  EXPECT_THAT(sent(), ElementsAre(Op::kAcknowledge, Op::kSendOnly));
  EXPECT_FALSE(e.qp->has_acknowledgement());
}

TEST_F(SendingAtOnce, NothingWherePacketsMayBeLost) {
  e.routes.route.traits.lossless = false;
  post(IBV_WR_SEND, 8);
  EXPECT_FALSE(send_at_once());
  EXPECT_THAT(sent(), IsEmpty());
}

TEST_F(SendingAtOnce, NothingWhileSomethingIsToBeSentAgain) {
  post(IBV_WR_SEND, 8);
  post(IBV_WR_SEND, 8);
  EXPECT_TRUE(send_at_once());
  sent();
  nak(100, NakCode::kSequenceError);
  post(IBV_WR_SEND, 8);
  EXPECT_FALSE(send_at_once());
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(100, 101, 102));
}

TEST_F(SendingAtOnce, AFenceWaitsForTheReadBefore) {
  post(IBV_WR_RDMA_READ, 8);
  e.transmitted();
  post(IBV_WR_SEND, 8, IBV_SEND_FENCE);
  EXPECT_FALSE(send_at_once());
  EXPECT_THAT(sent(), IsEmpty());
}

TEST_F(SendingAtOnce, WhatFindsNoRoomIsTheNextPacket) {
  e.sink.room = 1;
  post(IBV_WR_SEND, 8);
  post(IBV_WR_SEND, 8);
  EXPECT_FALSE(send_at_once());
  e.sink.room = -1;
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(100, 101));
}

TEST_F(SendingAtOnce, WhatMayNotBeReadFailsInItsTurn) {
  post(IBV_WR_SEND, 8);
  post_with_key(IBV_WR_SEND, 8, 0xbad);
  EXPECT_FALSE(send_at_once());
  e.transmitted();
  acknowledge(100);
  expect_sent(1);
  e.transmitted();
  expect_sent(2, IBV_WC_LOC_PROT_ERR);
}

// A peer's memory whose accesses succeed or fail depending on the next PSN.
class FickleAccess final : public DirectAccess {
 public:
  bool is_best_for(const Run&) override { return true; }
  bool read(const PeerRange& range, uint32_t, uint32_t, std::span<const ConstBytes>) override {
    return allows(range);
  }
  bool write(const PeerRange& range, uint32_t, uint32_t, std::span<const ConstBytes>) override {
    return allows(range);
  }
  std::optional<uint64_t> change(const PeerRange& range, const AtomicChange&) override {
    return allows(range) ? std::optional<uint64_t>(7) : std::nullopt;
  }

  uint32_t asked = 0;
  uint32_t allowed = 0;

 private:
  bool allows(const PeerRange& range) {
    ++asked;
    const bool allows = range.next_psn.value() % 3 != 0;
    allowed += allows ? 1 : 0;
    return allows;
  }
};

// Two QPs with the same requests and the same incoming packets. One sends requests at once where that is
// possible.
class Twins : public testing::TestWithParam<uint32_t> {
 protected:
  struct Twin {
    explicit Twin(bool quick) : is_quick(quick) {
      e.routes.route.traits = kMemoryTraits;
      e.routes.route.direct = &access;
      local.fill(1);
      e.bring_up();
    }
    void post(const ibv_send_wr& request, uint32_t length, bool known) {
      ibv_send_wr wr = request;
      ibv_sge sge = local.sge(0, length);
      if (!known) sge.lkey = 0xbad;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      post_send(*e.qp, wr);
    }
    void drive() {
      if (!is_quick || !e.qp->send_at_once(e.now)) e.transmit();
      e.qp->answer_lost_completions();
    }
    std::vector<std::vector<std::byte>> sent() {
      std::vector<std::vector<std::byte>> all;
      for (const SentPacket& packet : e.sink.packets) {
        std::vector<std::byte> bytes(roce::header_bytes(packet.headers.opcode));
        roce::encode(packet.headers, bytes);
        bytes.insert(bytes.end(), packet.payload.begin(), packet.payload.end());
        bytes.push_back(static_cast<std::byte>(packet.count));
        all.push_back(std::move(bytes));
      }
      return all;
    }
    std::vector<std::pair<uint64_t, int>> completed() {
      std::vector<std::pair<uint64_t, int>> all;
      ibv_wc wc;
      while (e.send_cq->poll(1, &wc) == 1) all.emplace_back(wc.wr_id, wc.status * 256 + wc.opcode);
      return all;
    }
    void answer(const SentPacket& packet) {
      roce::Headers headers = rc_headers(Op::kAcknowledge, packet.psn() + packet.count - 1);
      headers.syndrome = roce::ack_syndrome();
      if (packet.operation() == Op::kFetchAdd) {
        headers.opcode = roce::make_opcode(roce::Service::kRc, Op::kAtomicAcknowledge);
      } else if (packet.operation() == Op::kReadRequest) {
        headers.opcode = roce::make_opcode(roce::Service::kRc, Op::kReadResponseOnly);
        const std::vector<std::byte> data(packet.headers.dma_length);
        headers.pad = roce::padding_of(packet.headers.dma_length);
        e.receive(headers, data);
        return;
      }
      e.receive(headers);
    }
    void hear(uint32_t psn, uint8_t syndrome) {
      roce::Headers headers = rc_headers(Op::kAcknowledge, psn);
      headers.syndrome = syndrome;
      e.receive(headers);
    }

    const bool is_quick;
    FickleAccess access;
    Endpoint<RcQueuePair> e;
    Buffer& local = e.memory.add(1 << 16);
  };

  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  template <class Action>
  void both(Action action) {
    action(quick_);
    action(other_);
  }

  void post_some() {
    static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND,          IBV_WR_SEND,
                                                 IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                                                 IBV_WR_RDMA_READ,     IBV_WR_ATOMIC_FETCH_AND_ADD};
    static constexpr uint32_t kLengths[] = {0, 1, 8, 255, 256, 257, 2000};
    for (uint32_t count = 1 + below(4); count > 0; --count) {
      ibv_send_wr wr{};
      wr.wr_id = ++next_id_;
      wr.opcode = kOpcodes[below(std::size(kOpcodes))];
      uint32_t length = kLengths[below(std::size(kLengths))];
      if (wr.opcode == IBV_WR_RDMA_READ || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) length = 8;
      wr.imm_data = next_id_;
      if (below(4) == 0) wr.send_flags |= IBV_SEND_SOLICITED;
      if (below(6) == 0) wr.send_flags |= IBV_SEND_FENCE;
      const bool is_sent = wr.opcode != IBV_WR_RDMA_READ && wr.opcode != IBV_WR_ATOMIC_FETCH_AND_ADD;
      if (is_sent && length <= 256 && below(4) == 0) wr.send_flags |= IBV_SEND_INLINE;
      const bool known = below(150) != 0;
      both([&](Twin& twin) { twin.post(wr, length, known); });
    }
  }
  void hear_something() {
    const uint32_t psn = quick_.e.qp->next_send_psn().value() - below(8);
    const uint8_t syndromes[] = {roce::ack_syndrome(), roce::nak_syndrome(roce::NakCode::kSequenceError),
                                 roce::rnr_syndrome(1)};
    const uint8_t syndrome = syndromes[below(std::size(syndromes))];
    both([&](Twin& twin) { twin.hear(psn, syndrome); });
  }
  void answer_some() {
    for (uint32_t count = below(6); count > 0 && !on_the_way_.empty(); --count) {
      both([&](Twin& twin) { twin.answer(on_the_way_.front()); });
      on_the_way_.pop_front();
    }
  }
  void let_time_pass() {
    if (quick_.e.qp->deadline() == kNever) return;
    both([](Twin& twin) { twin.e.wait_for_timer(); });
  }
  void step() {
    switch (below(16)) {
      case 0:
        return hear_something();
      case 1:
        return let_time_pass();
      case 2: {
        const int room = below(2) == 0 ? -1 : static_cast<int>(below(4));
        return both([room](Twin& twin) { twin.e.sink.room = room; });
      }
      case 3:
      case 4:
      case 5:
      case 6:
        return answer_some();
      default:
        return post_some();
    }
  }

  std::mt19937 random_{GetParam()};
  uint32_t next_id_ = 0;
  Twin quick_{true};
  Twin other_{false};
  std::deque<SentPacket> on_the_way_;
};

TEST_P(Twins, CannotBeToldFromWhatTheySend) {
  for (int i = 0; i < 400 && quick_.e.qp->state() == IBV_QPS_RTS; ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    step();
    both([](Twin& twin) { twin.drive(); });
    // In a batch, the last message requests the acknowledgement of all.
    for (size_t p = 0; p < std::min(quick_.e.sink.packets.size(), other_.e.sink.packets.size()); ++p) {
      SentPacket& packet = quick_.e.sink.packets[p];
      if (packet.is_followed) packet.headers.ack_request = other_.e.sink.packets[p].asks();
    }
    ASSERT_EQ(quick_.sent(), other_.sent());
    ASSERT_EQ(quick_.completed(), other_.completed());
    ASSERT_EQ(quick_.access.asked, other_.access.asked);
    ASSERT_EQ(quick_.access.allowed, other_.access.allowed);
    ASSERT_EQ(quick_.e.qp->deadline(), other_.e.qp->deadline());
    ASSERT_EQ(quick_.e.qp->state(), other_.e.qp->state());
    ASSERT_EQ(quick_.e.qp->next_send_psn(), other_.e.qp->next_send_psn());
    for (int c = 0; c < kQpCounterCount; ++c) {
      const auto which = static_cast<QpCounter>(c);
      ASSERT_EQ(quick_.e.counter(which), other_.e.counter(which)) << kQpCounterNames[which];
    }
    for (SentPacket& packet : quick_.e.sink.packets) on_the_way_.push_back(std::move(packet));
    quick_.e.sink.packets.clear();
    other_.e.sink.packets.clear();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Twins, testing::Range(1u, 201u));

}  // namespace
}  // namespace verbena::transport
