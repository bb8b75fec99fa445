// SPDX-License-Identifier: Apache-2.0
// SENDs over shared memory that carry only data, and take a short path at the receiver. Tests which SENDs do,
// and that both ends see the same as with any other packet.
#include <algorithm>
#include <optional>
#include <random>

#include "adapter/transport/send_request.h"
#include "adapter/transport/support/responder_test.h"

namespace verbena::transport {
namespace {

using Op = roce::Operation;

class PlainSends : public ResponderTest {
 protected:
  void SetUp() override {
    e.routes.route.traits = kMemoryTraits;
    ResponderTest::SetUp();
    e.qp->enter(IBV_QPS_RTS);
  }
  PlainSend message(uint32_t psn, size_t bytes, bool asks = true) const {
    return {.headers = {.opcode = PlainSend::kOpcode,
                        .pad = roce::padding_of(static_cast<uint32_t>(bytes)),
                        .ack_request = asks,
                        .destination = roce::Qpn(0x11),
                        .psn = roce::Psn(psn)},
            .payload = data(bytes)};
  }
  // Sends a SEND of ours, which waits for its acknowledgement.
  void send_one(uint64_t id) {
    Buffer& outbox = e.memory.add(4096);
    ibv_sge sge = outbox.sge(0, 8);
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    post_send(*e.qp, wr);
    e.transmitted();
  }
  std::optional<Verdict> take(const PlainSend& message) {
    return e.qp->on_plain_send(
        message, path_between(e.attributes().path.destination, e.attributes().path.source), e.now);
  }
};

TEST_F(PlainSends, CompleteAReceiveRequestAndAreAcknowledged) {
  post();
  EXPECT_EQ(take(message(200, 100)), Verdict::kAccepted);
  const ibv_wc wc = e.received();
  EXPECT_EQ(wc.wr_id, 1u);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, 100u);
  EXPECT_EQ(wc.qp_num, 0x11u);
  EXPECT_EQ(wc.src_qp, 0x22u);
  EXPECT_EQ(wc.wc_flags, 0u);
  EXPECT_TRUE(std::ranges::equal(inbox.bytes(0, 100), data(100)));
  expect_ack(200, 1);
  EXPECT_EQ(e.counter(kReceivedPackets), 1u);
  EXPECT_EQ(e.counter(kReceivedBytes), 100u);
  EXPECT_EQ(e.counter(kReceives), 1u);
}

TEST_F(PlainSends, EndTheRequestsThatTheirAcknowledgementAnswers) {
  send_one(7);
  post();
  PlainSend reply = message(200, 8);
  const Acknowledgement acknowledgement{roce::Psn(100), 1, roce::ack_syndrome()};
  reply.acknowledgement = &acknowledgement;
  EXPECT_EQ(take(reply), Verdict::kAccepted);
  EXPECT_EQ(e.sent().wr_id, 7u);
  expect_received(1, 8);
  EXPECT_EQ(e.counter(kReceivedPackets), 2u);
}

// A SEND that the short path declines leaves no trace: no counter, no completion, no answer.
TEST_F(PlainSends, LeaveWhatNeedsALongerLook) {
  EXPECT_EQ(take(message(200, 8)), std::nullopt) << "there is no receive request";
  post(4);
  EXPECT_EQ(take(message(200, 8)), std::nullopt) << "it is too long";
  EXPECT_EQ(take(message(201, 4)), std::nullopt) << "it is not its turn";
  EXPECT_EQ(take(message(199, 4)), std::nullopt) << "it is a duplicate";
  EXPECT_EQ(take(message(200, 257)), std::nullopt) << "it is no packet of this path";
  PlainSend fewer = message(200, 4);
  fewer.count = 2;
  EXPECT_EQ(take(fewer), std::nullopt) << "it says that it is two, and is one";
  roce::Path stranger = path_between(ipv4(9), e.attributes().path.source);
  EXPECT_EQ(e.qp->on_plain_send(message(200, 4), stranger, e.now), std::nullopt);
  expect_silence();
  expect_none_received();
  EXPECT_EQ(e.counter(kReceivedPackets), 0u);
  EXPECT_EQ(e.qp->next_receive_psn(), roce::Psn(200));
  EXPECT_EQ(take(message(200, 4)), Verdict::kAccepted);
  expect_received(1, 4);
}

// Several packets that travel as one. They use the PSNs of all of them.
TEST_F(PlainSends, OfSomePacketsThatAreJoinedAreTaken) {
  post();
  PlainSend joined = message(200, 600);
  joined.count = 3;
  EXPECT_EQ(take(joined), Verdict::kAccepted);
  expect_received(1, 600);
  expect_ack(202, 1);
  EXPECT_EQ(e.qp->next_receive_psn(), roce::Psn(203));
  EXPECT_EQ(e.counter(kReceivedPackets), 3u) << "as on a network";
}

TEST_F(PlainSends, LeaveWhatComesInTheMidstOfAMessage) {
  post();
  send(Op::kSendFirst, 200, data(256), false);
  EXPECT_EQ(take(message(201, 8)), std::nullopt);
}

TEST_F(PlainSends, LeaveWhatComesByAWayThatMayLose) {
  e.routes.route.traits.lossless = false;
  post();
  EXPECT_EQ(take(message(200, 8)), std::nullopt);
}

TEST_F(PlainSends, LeaveWhatComesBeforeTheQueuePairSends) {
  Endpoint<RcQueuePair> early;
  early.routes.route.traits = kMemoryTraits;
  early.bring_up(IBV_QPS_RTR);
  bool is_plain = true;
  early.receive_send(message(200, 8), true, &is_plain);
  EXPECT_FALSE(is_plain);
  EXPECT_EQ(early.log.events, std::vector{IBV_EVENT_COMM_EST});
}

TEST_F(PlainSends, AreNotTakenWhereTheirAcknowledgementEndsTheQueuePair) {
  send_one(0);
  post();
  PlainSend reply = message(200, 8);
  const Acknowledgement refusal{roce::Psn(100), 0, roce::nak_syndrome(NakCode::kInvalidRequest)};
  reply.acknowledgement = &refusal;
  EXPECT_EQ(take(reply), Verdict::kNotReady);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  EXPECT_EQ(e.sent().status, IBV_WC_REM_INV_REQ_ERR);
  expect_received(1, 0, IBV_WC_WR_FLUSH_ERR);
  expect_none_received();
}

// ---- the short path against the general one

// Two queue pairs get the same messages and acknowledgements. One takes SENDs on the short path where it can,
// the other never does.
class SamePlainly : public testing::TestWithParam<uint32_t> {
 protected:
  using Rows = std::vector<std::vector<uint64_t>>;
  struct Twin {
    explicit Twin(bool plainly) : hears_plainly(plainly), e({.signal_all = false}) {
      e.routes.route.traits = kMemoryTraits;
      e.bring_up();
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
    void send(ibv_wr_opcode opcode, uint64_t id, unsigned flags, bool at_once) {
      ibv_sge sge = inbox.sge(0, 8);
      ibv_send_wr wr{};
      wr.wr_id = id;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.opcode = opcode;
      wr.send_flags = flags;
      wr.wr.rdma.remote_addr = 0x1000;
      post_send(*e.qp, wr);
      if (at_once) (void)e.qp->send_at_once(e.now);
    }
    void hear(const PlainSend& message) {
      bool is_plain = false;
      verdicts.push_back(e.receive_send(message, hears_plainly, &is_plain));
      taken_plainly += is_plain ? 1 : 0;
      e.qp->answer_lost_completions();
    }
    static Rows completed(queues::CompletionQueue& cq) {
      Rows all;
      ibv_wc wc;
      while (cq.poll(1, &wc) == 1) {
        all.push_back({wc.wr_id, wc.status, wc.opcode, wc.byte_len, wc.qp_num, wc.src_qp, wc.wc_flags});
      }
      return all;
    }
    Rows answers() {
      Rows all;
      for (const SentPacket& packet : e.transmitted()) {
        all.push_back({packet.headers.opcode, packet.psn(), packet.headers.syndrome, packet.headers.msn,
                       packet.headers.ack_request, packet.headers.solicited, packet.headers.pad});
      }
      return all;
    }
    const bool hears_plainly;
    int taken_plainly = 0;
    std::vector<Verdict> verdicts;
    Endpoint<RcQueuePair> e;
    Buffer& inbox = e.memory.add(1 << 16);
  };

  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  template <class Do>
  void both(Do what) {
    what(plain_);
    what(other_);
  }

  std::mt19937 random_{GetParam()};
  Twin plain_{true};
  Twin other_{false};
};

TEST_P(SamePlainly, NobodyCouldTellThemApart) {
  SCOPED_TRACE(testing::Message() << "seed " << GetParam());
  std::vector<std::byte> data(1100);
  uint64_t id = 0;
  for (int round = 0; round < 300; ++round) {
    for (uint32_t count = below(3); count > 0; --count) {
      const uint32_t length = below(40) == 0 ? 4 : 800 + below(224);
      const bool known = below(100) != 0;
      const bool split = below(6) == 0;
      ++id;
      both([&](Twin& twin) { twin.post(length, id, known, split); });
    }
    if (below(2) == 0) {
      const auto opcode = below(5) == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND;
      const unsigned flags = below(2) == 0 ? IBV_SEND_SIGNALED : 0;
      const bool at_once = below(2) == 0;
      ++id;
      both([&](Twin& twin) { twin.send(opcode, id, flags, at_once); });
    }
    for (std::byte& b : data) b = static_cast<std::byte>(random_());
    // Mostly the next message, sometimes a duplicate or an early one.
    const roce::Psn expected = plain_.e.qp->next_receive_psn();
    const bool is_joined = below(4) == 0;
    const uint32_t bytes = is_joined ? 257 + below(511) : below(100) == 0 ? 256 + below(40) : below(65);
    const uint32_t packets = is_joined ? packets_for(bytes, 256) : 1;
    PlainSend message{
        .headers = {.opcode = PlainSend::kOpcode,
                    .pad = roce::padding_of(bytes),
                    .solicited = below(8) == 0,
                    .ack_request = below(2) == 0,
                    .destination = roce::Qpn(0x11),
                    .psn = below(20) == 0 ? expected + below(3) : expected - below(2) * below(3)},
        .payload = std::span(data).first(bytes),
        .count = packets + (below(200) == 0 ? 1 : 0)};
    const auto syndrome = below(200) == 0  ? roce::nak_syndrome(roce::NakCode::kRemoteAccess)
                          : below(20) == 0 ? roce::nak_syndrome(roce::NakCode::kSequenceError)
                          : below(20) == 0 ? roce::rnr_syndrome(1)
                                           : roce::ack_syndrome();
    const Acknowledgement acknowledgement{plain_.e.qp->next_send_psn() - below(5), 0, syndrome};
    if (below(2) == 0) message.acknowledgement = &acknowledgement;
    both([&](Twin& twin) { twin.hear(message); });
    ASSERT_EQ(plain_.verdicts, other_.verdicts);
    ASSERT_EQ(Twin::completed(*plain_.e.send_cq), Twin::completed(*other_.e.send_cq));
    ASSERT_EQ(Twin::completed(*plain_.e.recv_cq), Twin::completed(*other_.e.recv_cq));
    ASSERT_EQ(plain_.answers(), other_.answers());
    ASSERT_EQ(plain_.e.qp->next_receive_psn(), other_.e.qp->next_receive_psn());
    ASSERT_EQ(plain_.e.qp->state(), other_.e.qp->state());
    ASSERT_EQ(plain_.e.qp->deadline(), other_.e.qp->deadline());
    // The contents of a flushed receive's buffer are undefined.
    if (plain_.e.qp->state() == IBV_QPS_ERR) break;
    ASSERT_TRUE(std::ranges::equal(plain_.inbox.bytes(0, 1 << 16), other_.inbox.bytes(0, 1 << 16)));
  }
  for (uint32_t i = 0; i < kQpCounterCount; ++i) {
    const auto which = static_cast<QpCounter>(i);
    EXPECT_EQ(plain_.e.counter(which), other_.e.counter(which)) << kQpCounterNames[which];
  }
  if (plain_.e.qp->state() != IBV_QPS_ERR) {
    EXPECT_GT(plain_.taken_plainly, 50);
  }
}
INSTANTIATE_TEST_SUITE_P(Random, SamePlainly, testing::Range(1u, 129u));

}  // namespace
}  // namespace verbena::transport
