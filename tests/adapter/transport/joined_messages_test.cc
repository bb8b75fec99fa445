// SPDX-License-Identifier: Apache-2.0
// Small messages that are sent as a batch: which messages, and that both ends see the same as if each were
// sent singly.
#include <random>

#include "adapter/transport/support/requester_test.h"
#include "adapter/transport/support/responder_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Op = roce::Operation;

// ---- sending side

class SendingTogether : public RequesterTest {
 protected:
  void SetUp() override {
    e.routes.route.traits = kMemoryTraits;
    RequesterTest::SetUp();
  }
  void post_small(int count, uint32_t length = 8, unsigned flags = 0) {
    for (int i = 0; i < count; ++i) post(IBV_WR_SEND, length, flags);
  }
  bool send_at_once() { return e.qp->send_at_once(e.now); }
  std::vector<uint32_t> together() { return std::exchange(e.sink.together, {}); }
  std::vector<SentPacket> sent() {
    std::vector<SentPacket> all;
    while (!e.sink.packets.empty()) all.push_back(e.sink.take());
    return all;
  }
};

TEST_F(SendingTogether, TakesWhatIsSmallAndFollowsEachOther) {
  post_small(3);
  EXPECT_TRUE(send_at_once());
  EXPECT_THAT(together(), ElementsAre(3));
  const auto packets = sent();
  EXPECT_THAT(psns(packets), ElementsAre(100, 101, 102));
  EXPECT_FALSE(packets[0].asks());
  EXPECT_FALSE(packets[1].asks());
  EXPECT_TRUE(packets[2].asks()) << "the last that was posted";
  EXPECT_NE(e.qp->deadline(), kNever);
  EXPECT_EQ(e.counter(kSentPackets), 3u);
  EXPECT_EQ(e.counter(kSentBytes), 24u);
}

TEST_F(SendingTogether, OneByItselfIsAPacketAsEver) {
  post_small(1);
  EXPECT_TRUE(send_at_once());
  EXPECT_THAT(together(), IsEmpty());
  EXPECT_THAT(sent(), SizeIs(1));
}

TEST_F(SendingTogether, NoMoreThanFitTogether) {
  post_small(2 * kMaxJoinedMessages + 1);
  EXPECT_TRUE(send_at_once());
  EXPECT_THAT(together(), ElementsAre(kMaxJoinedMessages, kMaxJoinedMessages));
  EXPECT_THAT(sent(), SizeIs(2 * kMaxJoinedMessages + 1));
}

TEST_F(SendingTogether, EndsBeforeWhatIsAnythingElse) {
  post_small(2);
  post(IBV_WR_SEND, kLongestJoinedMessage + 1);
  post_small(2, kLongestJoinedMessage);
  post(IBV_WR_SEND_WITH_IMM, 8);
  post_small(2, 0);
  post(IBV_WR_SEND, 8, IBV_SEND_SOLICITED);
  post_small(2, 8, IBV_SEND_INLINE);
  post(IBV_WR_SEND, 8, IBV_SEND_FENCE);
  EXPECT_TRUE(send_at_once());
  EXPECT_THAT(together(), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(operations(sent()), SizeIs(12));
}

TEST_F(SendingTogether, EachIsAcknowledgedAndCompletesByItself) {
  post_small(4);
  EXPECT_TRUE(send_at_once());
  acknowledge(101);
  expect_sent(1);
  expect_sent(2);
  expect_none_sent();
  acknowledge(103);
  expect_sent(3);
  expect_sent(4);
  EXPECT_EQ(e.qp->deadline(), kNever);
}

TEST_F(SendingTogether, WhatThePeerWasNotReadyForIsSentAgainFromThere) {
  post_small(4);
  EXPECT_TRUE(send_at_once());
  sent();
  rnr(102, 12);
  expect_sent(1);
  expect_sent(2);
  expect_none_sent();
  e.wait_for_timer();
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(102, 103));
  acknowledge(103);
  expect_sent(3);
  expect_sent(4);
}

TEST_F(SendingTogether, TheFaultOfOneIsItsOwn) {
  post_small(2);
  post_with_key(IBV_WR_SEND, 8, 0xbad);
  post_small(1);
  EXPECT_FALSE(send_at_once());
  EXPECT_THAT(together(), ElementsAre(2));
  e.transmitted();
  acknowledge(101);
  expect_sent(1);
  expect_sent(2);
  e.transmitted();
  expect_sent(3, IBV_WC_LOC_PROT_ERR);
  expect_sent(4, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(SendingTogether, WhereMemoryIsGoneEachIsTriedByItself) {
  post_small(3);
  e.sink.faults = true;
  EXPECT_FALSE(send_at_once());
  EXPECT_THAT(sent(), IsEmpty());
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(100, 101, 102));
}

TEST_F(SendingTogether, WhatFindsNoRoomIsTheNextPacket) {
  post_small(3);
  e.sink.room = 0;
  EXPECT_FALSE(send_at_once());
  e.sink.room = -1;
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(100, 101, 102));
}

// The message before the fault had not requested an acknowledgement, so it is sent again with a request.
TEST_F(SendingTogether, EmptyOnesBeforeAFaultAreAcknowledged) {
  post_small(2, 0);
  post_with_key(IBV_WR_SEND, 8, 0xbad);
  EXPECT_FALSE(send_at_once());
  EXPECT_FALSE(sent().back().asks());
  const auto again = e.transmitted();
  ASSERT_THAT(psns(again), ElementsAre(101));
  EXPECT_TRUE(again[0].asks());
}

// ---- coalescing

class Gathering : public SendingTogether {
 protected:
  static constexpr uint32_t kBehind = 8;
  void SetUp() override {
    SendingTogether::SetUp();
    post_small(kBehind);
    send_at_once();
  }
};

TEST_F(Gathering, SmallMessagesMayWaitWhileThePeerIsBehind) {
  post_small(1);
  EXPECT_TRUE(e.qp->may_gather());
  acknowledge(100);
  EXPECT_FALSE(e.qp->may_gather());
}

TEST_F(Gathering, OnlyUntilAsManyAreTogetherAsGoTogether) {
  post_small(kMaxJoinedMessages - 1);
  EXPECT_TRUE(e.qp->may_gather());
  post_small(1);
  EXPECT_FALSE(e.qp->may_gather());
}

TEST_F(Gathering, OneLongRequestIsNoStream) {
  acknowledge(100 + kBehind - 1);
  post(IBV_WR_RDMA_WRITE, 100 * 256);
  e.transmitted();
  post_small(1);
  EXPECT_FALSE(e.qp->may_gather());
}

TEST_F(Gathering, NothingElseWaits) {
  EXPECT_FALSE(e.qp->may_gather()) << "there is nothing";
  post_small(1);
  post(IBV_WR_RDMA_WRITE, 8);
  EXPECT_FALSE(e.qp->may_gather());
}

TEST_F(Gathering, NotWhatASolicitedEventWaitsFor) {
  post(IBV_WR_SEND, 8, IBV_SEND_SOLICITED);
  EXPECT_FALSE(e.qp->may_gather());
}

// ---- receiving side

class ReceivingTogether : public ResponderTest {
 protected:
  void SetUp() override {
    e.routes.route.traits = kMemoryTraits;
    ResponderTest::SetUp();
  }
  void send_together(uint32_t psn, std::vector<uint8_t> lengths, bool asks = true) {
    size_t bytes = 0;
    for (const uint8_t length : lengths) bytes += length;
    roce::Headers headers = rc_headers(Op::kSendOnly, psn);
    headers.ack_request = asks;
    EXPECT_EQ(e.receive_messages(headers, data(bytes), lengths), Verdict::kAccepted);
  }
};

TEST_F(ReceivingTogether, EachIsAMessage) {
  for (int i = 0; i < 3; ++i) post();
  send_together(200, {8, 0, 100});
  expect_received(1, 8);
  expect_received(2, 0);
  expect_received(3, 100);
  EXPECT_TRUE(std::ranges::equal(inbox.bytes(0, 100), data(100, 8)));
  expect_ack(202, 3);
  EXPECT_EQ(e.counter(kReceivedPackets), 3u);
  EXPECT_EQ(e.counter(kReceives), 3u);
}

TEST_F(ReceivingTogether, TheCompletionSaysWhatItWouldSingly) {
  post();
  post();
  send_together(200, {8, 8});
  const ibv_wc wc = e.received();
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.qp_num, 0x11u);
  EXPECT_EQ(wc.src_qp, 0x22u);
  EXPECT_EQ(wc.wc_flags, 0u);
}

TEST_F(ReceivingTogether, ThoseWithoutAReceiveRequestAreAskedForAgain) {
  post();
  send_together(200, {8, 8, 8});
  expect_received(1, 8);
  expect_none_received();
  expect_ack(200, 1);
  e.wait_for_timer();
  expect_acknowledge(201, roce::rnr_syndrome(12), 1);
  post();
  post();
  send(Op::kSendOnly, 201, data(8), false);
  send(Op::kSendOnly, 202, data(8));
  expect_received(2, 8);
  expect_received(3, 8);
  expect_ack(202, 3);
}

TEST_F(ReceivingTogether, TooLongAMessageIsRefusedAndThoseBeforeItAreReceived) {
  post();
  post(4);
  post();
  send_together(200, {8, 8, 8});
  expect_received(1, 8);
  const ibv_wc failed = e.received();
  EXPECT_EQ(failed.wr_id, 2u);
  EXPECT_EQ(failed.status, IBV_WC_LOC_LEN_ERR);
  const ibv_wc flushed = e.received();
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  expect_nak(201, NakCode::kInvalidRequest, 1);
}

TEST_F(ReceivingTogether, WhatWasReceivedBeforeIsAcknowledgedAgain) {
  for (int i = 0; i < 3; ++i) post();
  send(Op::kSendOnly, 200, data(8));
  send_together(200, {8, 8, 8});
  expect_received(1, 8);
  expect_received(2, 8);
  expect_received(3, 8);
  expect_none_received();
  expect_ack(202, 3);
}

TEST_F(ReceivingTogether, OnesAheadOfTheExpectedAreAskedForAgain) {
  for (int i = 0; i < 3; ++i) post();
  send_together(201, {8, 8});
  expect_none_received();
  expect_nak(200, NakCode::kSequenceError, 0);
}

TEST_F(ReceivingTogether, ScattersWhereARequestHasSeveralPieces) {
  const ibv_sge list[] = {inbox.sge(100, 3), inbox.sge(200, 100)};
  post_list(list);
  post();
  send_together(200, {8, 8});
  EXPECT_TRUE(std::ranges::equal(inbox.bytes(100, 3), data(3)));
  EXPECT_TRUE(std::ranges::equal(inbox.bytes(200, 5), data(5, 3)));
  expect_received(1, 8);
  expect_received(2, 8);
}

TEST_F(ReceivingTogether, AQueueWithoutRoomIsInErrorAsSingly) {
  Endpoint<RcQueuePair> small({.cq_entries = 1});
  small.routes.route.traits = kMemoryTraits;
  small.bring_up(IBV_QPS_RTR);
  Buffer& buffer = small.memory.add(4096);
  for (int i = 0; i < 3; ++i) {
    ibv_sge sge = buffer.sge(0, 64);
    ibv_recv_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    post_recv(*small.qp, wr);
  }
  const std::vector<uint8_t> lengths = {8, 8, 8};
  small.receive_messages(rc_headers(Op::kSendOnly, 200), data(24), lengths);
  EXPECT_EQ(small.log.overflows, 1);
  EXPECT_TRUE(small.qp->has_lost_completions());
}

// ---- batches against single messages

// Two responders get the same messages: one in batches, the other singly. Both must behave the same.
class SameTogether : public testing::TestWithParam<uint32_t> {
 protected:
  struct Twin {
    explicit Twin(bool joined) : hears_together(joined) {
      e.routes.route.traits = kMemoryTraits;
      e.bring_up(IBV_QPS_RTR);
    }
    void post(uint32_t length, uint64_t id, bool known, bool split) {
      ibv_sge list[2] = {inbox.sge(static_cast<uint32_t>(id % 64) * 1024, length), inbox.sge(0, 16)};
      if (!known) list[0].lkey = 0xbad;
      ibv_recv_wr wr{};
      wr.wr_id = id;
      wr.sg_list = list;
      wr.num_sge = split ? 2 : 1;
      post_recv(*e.qp, wr);
    }
    void hear(const roce::Headers& headers, ConstBytes payload, std::span<const uint8_t> lengths) {
      if (hears_together) {
        e.receive_messages(headers, payload, lengths);
      } else {
        for (size_t i = 0; i < lengths.size(); ++i) {
          e.receive(headers_of_message(headers, lengths, i), payload.first(lengths[i]));
          payload = payload.subspan(lengths[i]);
        }
      }
      e.qp->answer_lost_completions();
    }
    std::vector<std::vector<uint64_t>> completed() {
      std::vector<std::vector<uint64_t>> all;
      ibv_wc wc;
      while (e.recv_cq->poll(1, &wc) == 1) {
        all.push_back({wc.wr_id, wc.status, wc.opcode, wc.byte_len, wc.qp_num, wc.src_qp, wc.wc_flags});
      }
      return all;
    }
    std::vector<std::vector<uint32_t>> answers() {
      std::vector<std::vector<uint32_t>> all;
      for (const SentPacket& packet : e.transmitted()) {
        all.push_back({packet.headers.opcode, packet.psn(), packet.headers.syndrome, packet.headers.msn});
      }
      return all;
    }
    const bool hears_together;
    Endpoint<RcQueuePair> e;
    Buffer& inbox = e.memory.add(1 << 16);
  };

  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }

  std::mt19937 random_{GetParam()};
  Twin joined_{true};
  Twin single_{false};
};

TEST_P(SameTogether, NobodyCouldTellThemApart) {
  SCOPED_TRACE(testing::Message() << "seed " << GetParam());
  std::vector<std::byte> data(16 * 255);
  uint64_t id = 0;
  for (int round = 0; round < 60; ++round) {
    for (uint32_t count = below(14); count > 0; --count) {
      const uint32_t length = below(40) == 0 ? 4 : 64 + below(192);
      const bool known = below(60) != 0;
      const bool split = below(6) == 0;
      ++id;
      joined_.post(length, id, known, split);
      single_.post(length, id, known, split);
    }
    std::vector<uint8_t> lengths(1 + below(16));
    size_t bytes = 0;
    for (uint8_t& length : lengths) bytes += length = static_cast<uint8_t>(below(66));
    for (std::byte& b : data) b = static_cast<std::byte>(random_());
    // Mostly the next message, sometimes a duplicate or an early one.
    const roce::Psn expected = single_.e.qp->next_receive_psn();
    roce::Headers headers = rc_headers(Op::kSendOnly, 0);
    headers.psn = below(6) == 0 ? expected + below(4) : expected - below(2) * below(8);
    headers.ack_request = below(2) == 0;
    joined_.hear(headers, std::span(data).first(bytes), lengths);
    single_.hear(headers, std::span(data).first(bytes), lengths);
    ASSERT_EQ(joined_.completed(), single_.completed());
    ASSERT_EQ(joined_.answers(), single_.answers());
    ASSERT_EQ(joined_.e.qp->next_receive_psn(), single_.e.qp->next_receive_psn());
    ASSERT_EQ(joined_.e.qp->state(), single_.e.qp->state());
    ASSERT_TRUE(std::ranges::equal(joined_.inbox.bytes(0, 1 << 16), single_.inbox.bytes(0, 1 << 16)));
  }
  for (uint32_t i = 0; i < kQpCounterCount; ++i) {
    const auto which = static_cast<QpCounter>(i);
    // In a batch, packets after the refused one have arrived as well, so these counters differ.
    const bool is_of_all = which == kReceivedPackets || which == kReceivedBytes || which == kReceivedOctets;
    if (is_of_all && single_.e.qp->state() == IBV_QPS_ERR) continue;
    EXPECT_EQ(joined_.e.counter(which), single_.e.counter(which)) << kQpCounterNames[which];
  }
}
INSTANTIATE_TEST_SUITE_P(Random, SameTogether, testing::Range(1u, 65u));

}  // namespace
}  // namespace verbena::transport
