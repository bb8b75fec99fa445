// SPDX-License-Identifier: Apache-2.0
// The requester when SACKs of its peer tell which packets have arrived beyond a gap.
#include "adapter/transport/support/requester_repair.h"

#include "adapter/transport/congestion_notices.h"
#include "adapter/transport/control_packets.h"
#include "adapter/transport/reorder_buffer.h"

namespace verbena::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

TEST_F(RequesterRepair, SendsWhatIsMissingAndNothingElse) {
  post(IBV_WR_SEND, 10 * 256);  // PSNs 101 to 110
  e.transmitted();
  tell(103, {{104, 107}, {109, 111}});
  EXPECT_THAT(sent_again(), ElementsAre()) << "it may only be late";
  e.wait_for_timer();
  EXPECT_THAT(sent_again(), ElementsAre(103, 107, 108));
  EXPECT_EQ(e.counter(kRetransmittedPackets), 3u);
  acknowledge(110);
  expect_sent(2);
}

TEST_F(RequesterRepair, ShowsWhatItKnowsOfThePath) {
  EXPECT_EQ(e.path_number(kPathRoundTrip), 1'000'000u);
  EXPECT_GT(e.path_number(kPathWindow), 10 * 256u);
  EXPECT_EQ(e.path_number(kPathLostPackets), 0u);
  post(IBV_WR_SEND, 10 * 256);
  e.transmitted();
  tell(103, {{104, 107}, {109, 111}});
  EXPECT_GT(e.path_number(kPathInFlight), 3 * 256u);
  EXPECT_LT(e.path_number(kPathInFlight), 10 * 256u);
  e.wait_for_timer();
  EXPECT_EQ(e.path_number(kPathLostPackets), 3u);
}

TEST_F(RequesterRepair, GivesALatePacketAQuarterOfARoundTrip) {
  post(IBV_WR_SEND, 4 * 256);
  e.transmitted();
  tell(102, {{103, 105}});
  EXPECT_EQ(e.qp->deadline(), e.now + microseconds(250));
  e.now += microseconds(200);
  acknowledge(104);
  EXPECT_THAT(sent_again(), ElementsAre());
  expect_sent(2);
  EXPECT_EQ(e.counter(kRetransmittedPackets), 0u);
}

TEST_F(RequesterRepair, WaitsLongerOnceSomethingWasOnlyLate) {
  post(IBV_WR_SEND, 8 * 256);
  e.transmitted();
  tell(102, {{103, 104}});
  e.wait_for_timer();
  EXPECT_THAT(sent_again(), ElementsAre(102));
  e.now -= microseconds(900);
  tell(105, {{106, 107}});  // too early to be caused by the repair
  EXPECT_GE(e.qp->deadline(), e.now + microseconds(500));
}

TEST_F(RequesterRepair, TakesWhatWasLateTogetherForLateOnce) {
  post(IBV_WR_SEND, 20 * 256);
  e.transmitted();
  tell(102, {{103, 104}, {105, 106}, {107, 108}, {109, 110}});
  e.wait_for_timer();
  EXPECT_THAT(sent_again(), ElementsAre(102, 104, 106, 108));
  for (const uint32_t psn : {103, 105, 107, 109}) {
    acknowledge(psn);  // too early to be caused by the repairs
  }
  tell(111, {{112, 113}});
  EXPECT_LE(e.qp->deadline(), e.now + microseconds(600)) << "twice a quarter of a round trip";
}

TEST_F(RequesterRepair, IsAwaitedAsLongAsThePathTookWhenItLeft) {
  uint32_t psn = 101;
  for (; psn < 121; ++psn) {
    post(IBV_WR_SEND, 256);
    e.transmitted();
    e.now += milliseconds(10);
    acknowledge(psn);
  }
  post(IBV_WR_SEND, 60 * 256);
  e.transmitted();
  tell(psn, {{psn + 1, psn + 2}});
  e.wait_for_timer();
  ASSERT_THAT(sent_again(), ElementsAre(psn));
  const TimePoint left = e.now;
  for (uint32_t arrived = 2; arrived < 60; ++arrived) {  // all at once: the queue is empty
    e.now -= milliseconds(1);
    tell(psn, {{psn + 1, psn + 1 + arrived}});
  }
  sent_again();
  e.now = left + milliseconds(8);
  e.qp->on_timer(e.now);
  EXPECT_THAT(sent_again(), Not(Contains(psn)));
  e.now = left + milliseconds(40);
  e.qp->on_timer(e.now);
  EXPECT_THAT(sent_again(), Contains(psn));
}

// During silence, probes become rarer. After an answer, repairs are as fast as before.
TEST_F(RequesterRepair, IsNotAwaitedForLongWhenSilenceIsOver) {
  post(IBV_WR_SEND, 8 * 256);
  e.transmitted();
  tell(102, {{103, 105}});
  for (int i = 0; i < 12; ++i) {
    e.wait_for_timer();
    e.transmitted();
  }
  const TimePoint since = e.now;
  tell(102, {{103, 106}});
  e.transmitted();
  e.now = since + milliseconds(10);
  e.qp->on_timer(e.now);
  EXPECT_THAT(sent_again(), Contains(102));
}

TEST_F(RequesterRepair, AnswersThatItUnderstands) {
  post(IBV_WR_SEND, 4 * 256);
  e.transmitted();
  tell(102, {{103, 105}});
  sent_again();
  EXPECT_EQ(heard, 1);
}

// A SACK is believed only if its own PSN is in the connection's window: a forged one could do harm.
TEST_F(RequesterRepair, BelievesNobodyWhoDoesNotKnowItsSequenceNumbers) {
  post(IBV_WR_SEND, 4 * 256);
  e.transmitted();
  for (const uint32_t psn : {106u, 101u - ReorderBuffer::kMaxAhead, 0x800000u}) tell(101, {{102, 103}}, psn);
  EXPECT_THAT(sent_again(), ElementsAre());
  EXPECT_EQ(heard, 0);
  tell(101, {{102, 103}}, 90);  // the SACK was overtaken
  EXPECT_THAT(sent_again(), ElementsAre());
  EXPECT_EQ(heard, 1);
}

TEST_F(RequesterRepair, AwaitsNoAcknowledgementOfThatAnswer) {
  tell(100, {{101, 102}});  // names packets that were never sent
  EXPECT_THAT(sent_again(), ElementsAre());
  EXPECT_EQ(heard, 1);
  EXPECT_EQ(e.qp->deadline(), kNever) << "a request that is posted later would have less time";
}

TEST_F(RequesterRepair, LetsSwitchesMarkWhatGoesToOneThatWouldTell) {
  post(IBV_WR_SEND, 4 * 256);
  for (const SentPacket& p : e.transmitted()) EXPECT_EQ(p.path.traffic_class, 0);
  tell(102, {{103, 105}});
  post(IBV_WR_SEND, 10);
  for (const SentPacket& p : e.transmitted()) EXPECT_EQ(p.path.traffic_class, roce::kEcnCapable);
}

TEST_F(RequesterRepair, GoesOnWithNewMessagesMeanwhile) {
  post(IBV_WR_SEND, 4 * 256);
  e.transmitted();
  tell(102, {{103, 105}});
  post(IBV_WR_SEND, 10);
  EXPECT_THAT(sent_again(), ElementsAre(105));
}

TEST_F(RequesterRepair, DoesNotGoBackForANakOfAGapThatItKnows) {
  post(IBV_WR_SEND, 4 * 256);
  e.transmitted();
  tell(102, {{103, 105}});
  nak(102, NakCode::kSequenceError);
  e.wait_for_timer();
  EXPECT_THAT(sent_again(), ElementsAre(102));
}

TEST_F(RequesterRepair, SaysAgainThatItUnderstandsToANakOfOneThatTells) {
  for (uint32_t i = 0; i < 2 * Sack::kMaxUnheard; ++i) tell(100, {{101, 102}});
  post(IBV_WR_SEND, 4 * 256);
  sent_again();
  const int before = heard;
  nak(102, NakCode::kSequenceError);
  EXPECT_THAT(sent_again(), ElementsAre(102, 103, 104)) << "what of it has arrived it was not told";
  EXPECT_EQ(heard, before + 1);
}

TEST_F(RequesterRepair, GoesBackForANakOfOneThatDoesNotTell) {
  post(IBV_WR_SEND, 4 * 256);
  e.transmitted();
  nak(102, NakCode::kSequenceError);
  EXPECT_THAT(sent_again(), ElementsAre(102, 103, 104));
}

TEST_F(RequesterRepair, RepairsAgainWhatWasLostAgain) {
  post(IBV_WR_SEND, 4 * 256);
  e.transmitted();
  tell(102, {{103, 105}});
  e.wait_for_timer();
  EXPECT_THAT(sent_again(), ElementsAre(102));
  e.now += microseconds(400);
  post(IBV_WR_SEND, 2 * 256);
  EXPECT_THAT(sent_again(), ElementsAre(105, 106));
  tell(102, {{103, 107}});  // packets sent later have arrived
  EXPECT_THAT(sent_again(), ElementsAre(102));
}

TEST_F(RequesterRepair, KnowsByALaterRepairThatOneWasLostAgain) {
  post(IBV_WR_SEND, 8 * 256);
  e.transmitted();
  tell(102, {{103, 105}});
  e.wait_for_timer();
  EXPECT_THAT(sent_again(), ElementsAre(102));
  tell(102, {{103, 105}, {106, 109}});
  e.wait_for_timer();
  EXPECT_THAT(sent_again(), ElementsAre(105));
  tell(102, {{103, 109}});
  EXPECT_THAT(sent_again(), ElementsAre(102));
}

TEST_F(RequesterRepair, SendsARequestForDataAgain) {
  post(IBV_WR_RDMA_READ, 3 * 256);
  post(IBV_WR_SEND, 10);
  e.transmitted();
  tell(101, {{104, 105}});
  e.wait_for_timer();
  const auto packets = e.transmitted();
  ASSERT_FALSE(packets.empty());
  EXPECT_EQ(packets.back().operation(), Operation::kReadRequest);
  EXPECT_EQ(packets.back().psn(), 101u);
  EXPECT_EQ(packets.back().headers.dma_length, 3u * 256);
}

TEST_F(RequesterRepair, TakesNoWordOfWhatItNeverSent) {
  post(IBV_WR_SEND, 4 * 256);
  e.transmitted();
  tell(102, {{103, 200}});
  tell(5000, {{5001, 5002}}, 102);
  tell(0x800000, {{0x800010, 0x800020}}, 102);
  acknowledge(104);
  expect_sent(2);
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
  EXPECT_FALSE(e.qp->has_outstanding());
}

// The peer reports every packet as received and acknowledges none. PSNs half the PSN space apart have no
// order.
TEST_F(RequesterRepair, GetsOnlySoFarAheadOfWhatIsAcknowledged) {
  post(IBV_WR_RDMA_WRITE, 1 << 20);  // 4096 packets
  uint32_t last = 101;
  for (int i = 0; i < 100; ++i) {
    for (const uint32_t psn : sent_again()) last = std::max(last, psn);
    tell(100, {{101, last + 1}});
    e.qp->on_timer(e.now);
  }
  // Eight windows of two bursts in whole packet runs: nothing is known about the path yet.
  const uint32_t packet = 256 + kSocketTraits.charge_per_packet;
  const uint32_t runs = 2 * kSocketTraits.burst_bytes / (kSocketTraits.packets_in_burst(256) * packet);
  EXPECT_EQ(last, 100 + 8 * runs * kSocketTraits.packets_in_burst(256));
  acknowledge(last);
  EXPECT_THAT(sent_again(), Contains(last + 1));
}

TEST_F(RequesterRepair, AsksWhatHasBecomeOfTheLastBeforeItsTimeIsOver) {
  post(IBV_WR_SEND, 3 * 256);
  e.transmitted();
  EXPECT_LT(e.qp->deadline(), e.now + roce::ack_timeout(14) / 2);
  e.wait_for_timer();
  const auto packets = e.transmitted();
  EXPECT_THAT(psns(packets), ElementsAre(103));
  EXPECT_TRUE(packets[0].asks());
  EXPECT_EQ(e.counter(kLocalAckTimeouts), 0u) << "no retry is used up";
}

TEST_F(RequesterRepair, GoesOnAskingWhereAllRequestsAreKnownToBeThere) {
  post(IBV_WR_SEND, 10);
  e.transmitted();
  tell(102, {});
  sent_again();
  for (int probe = 0; probe < 3; ++probe) {
    e.wait_for_timer();
    EXPECT_THAT(sent_again(), ElementsAre(101)) << probe;
  }
  EXPECT_EQ(e.counter(kLocalAckTimeouts), 0u);
}

TEST_F(RequesterRepair, AsksAgainAfterThePeerWasNotReady) {
  post(IBV_WR_SEND, 10);
  e.transmitted();
  e.wait_for_timer();
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(101));
  rnr(101, 1);
  e.wait_for_timer();
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(101));
  EXPECT_LT(e.qp->deadline(), e.now + roce::ack_timeout(14) / 2);
}

// The peer's process gets no processor, or has ended.
TEST_F(RequesterRepair, RepeatsLittleToAPeerThatHasFallenSilent) {
  post(IBV_WR_SEND, 5 * 256);
  e.transmitted();
  tell(101, {{102, 106}});
  sent_again();
  size_t copies = 0;
  while (e.counter(kLocalAckTimeouts) == 0) {
    e.wait_for_timer();
    copies += sent_again().size();
  }
  EXPECT_GE(copies, 2u);
  EXPECT_LE(copies, 12u);
}

// The peer may send nothing after this packet, so its acknowledgement must not wait for the pacer.
TEST(PacedRequester, AcknowledgesBeforeItWaits) {
  Endpoint<RcQueuePair> e({.congestion = congestion::Kind::kBbr});
  ibv_sge sge = e.memory.add(1 << 20).sge(0, 1 << 20);
  e.bring_up();
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ASSERT_TRUE(post_send(*e.qp, wr));
  const uint32_t past = 100 + static_cast<uint32_t>(e.transmitted().size());
  e.now += milliseconds(1);
  roce::Headers headers = rc_headers(roce::Operation::kAcknowledge, past - 1);
  headers.syndrome = roce::ack_syndrome();
  e.receive(headers);
  headers = rc_headers(roce::Operation::kWriteOnly, 200);
  headers.ack_request = true;
  e.receive(headers);
  EXPECT_EQ(e.transmit(), TransmitResult::kPaced);
  EXPECT_TRUE(std::ranges::any_of(e.sink.packets, [](const SentPacket& p) {
    return p.operation() == roce::Operation::kAcknowledge && p.psn() == 200;
  }));
}

}  // namespace
}  // namespace verbena::transport
