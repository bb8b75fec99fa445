// SPDX-License-Identifier: Apache-2.0
// Receiver reports of an unreliable connection, and the rate of senders that get them.
#include <algorithm>
#include <array>

#include <gmock/gmock.h>

#include "adapter/transport/control_packets.h"
#include "adapter/transport/support/uc_test.h"

namespace verbena::transport {
namespace {

using testing::IsEmpty;

constexpr uint32_t kMtu = 256;
constexpr uint32_t kFirst = 100;  // first PSN sent
constexpr uint32_t kNext = 200;   // first PSN received

TEST(ReceiverReport, SaysWhatItWasWrittenWith) {
  std::array<std::byte, ReceiverReport::kBytes> payload;
  const ReceiverReport written{
      .expected = roce::Psn(0xfffffe), .missing = 0x12345678, .incast = {.senders = 16, .dip = 5}};
  written.write(payload);
  const auto read = ReceiverReport::read(payload);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->expected, written.expected);
  EXPECT_EQ(read->missing, written.missing);
  EXPECT_EQ(read->incast.senders, 16u);
  EXPECT_EQ(read->incast.dip, 5);
  EXPECT_FALSE(ReceiverReport::read(std::span(payload).first(7)));
}

class UcReports : public UcTest {
 protected:
  static std::vector<SentPacket> of(uint8_t opcode, std::vector<SentPacket> packets) {
    std::erase_if(packets, [=](const SentPacket& p) { return p.headers.opcode != opcode; });
    return packets;
  }
  static std::vector<SentPacket> without_words(std::vector<SentPacket> packets) {
    std::erase_if(packets, [](const SentPacket& p) { return p.headers.service() != roce::Service::kUc; });
    return packets;
  }

  // ---- as the sender's peer

  // Posts a message of many windows.
  void post_much() { post(IBV_WR_SEND, 1 << 20); }
  size_t send_window() { return without_words(e.transmitted()).size(); }
  void report(uint32_t expected, uint32_t missing = 0) {
    std::array<std::byte, ReceiverReport::kBytes> payload;
    ReceiverReport{.expected = roce::Psn(expected), .missing = missing, .incast = {}}.write(payload);
    roce::Headers headers;
    headers.opcode = roce::kReceiverReportOpcode;
    headers.destination = roce::Qpn(0x11);
    headers.psn = roce::Psn(expected) - Sack::kPast;
    EXPECT_EQ(e.receive(headers, payload), Verdict::kAccepted);
  }
  void word(uint8_t opcode, roce::Psn psn = roce::Psn(0)) {
    roce::Headers headers;
    headers.opcode = opcode;
    headers.destination = roce::Qpn(0x11);
    headers.psn = psn;
    EXPECT_EQ(e.receive(headers), Verdict::kAccepted);
  }

  // ---- as the receiver's peer

  // Sends MIDDLE packets of an endless message.
  void send_parts(uint32_t first, uint32_t packets, bool asks = false) {
    for (uint32_t i = 0; i < packets; ++i) {
      roce::Headers headers = packet(Op::kSendMiddle, first + i, data(kMtu));
      headers.ack_request = asks;
      EXPECT_EQ(e.receive(headers, data(kMtu)), Verdict::kAccepted);
    }
  }
  std::vector<ReceiverReport> receipts() {
    std::vector<ReceiverReport> all;
    for (const SentPacket& p : of(roce::kReceiverReportOpcode, e.transmitted())) {
      all.push_back(*ReceiverReport::read(p.payload));
      EXPECT_EQ(p.headers.psn, all.back().expected - Sack::kPast);
      EXPECT_EQ(p.headers.destination, e.attributes().destination);
    }
    return all;
  }
  static constexpr uint32_t kWorthAReceipt = ReportsOwed::kUnheardBytes / kMtu;
};

// ---- the receiver

TEST_F(UcReports, TellWhatHasComeOfMuch) {
  send_parts(kNext, kWorthAReceipt - 1);
  EXPECT_THAT(receipts(), IsEmpty());
  send_parts(kNext + kWorthAReceipt - 1, 1);
  EXPECT_TRUE(e.qp->has_urgent());
  const auto told = receipts();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].expected, roce::Psn(kNext + kWorthAReceipt));
  EXPECT_EQ(told[0].missing, 0u);
  EXPECT_FALSE(e.qp->has_urgent());
}

TEST_F(UcReports, CountWhatIsMissingAndTakeBackWhatWasLate) {
  send_parts(kNext + 3, kWorthAReceipt);
  EXPECT_EQ(receipts().at(0).missing, 3u);
  send_parts(kNext + 1, 1);
  send_parts(kNext + 3 + kWorthAReceipt, kWorthAReceipt);
  EXPECT_EQ(receipts().at(0).missing, 2u);
}

TEST_F(UcReports, GoToWhoAsksOnceItHasShownThatItUnderstands) {
  send_parts(kNext, 1, true);
  EXPECT_THAT(receipts(), IsEmpty()) << "adapters ask, too";
  word(roce::kSackConfirmationOpcode, roce::Psn(kNext + 1) - Sack::kPast);
  send_parts(kNext + 1, 1, true);
  EXPECT_EQ(receipts().size(), 1u);
  send_parts(kNext + 2, 4 * kWorthAReceipt);
  EXPECT_THAT(receipts(), IsEmpty()) << "it has not asked";
}

TEST_F(UcReports, BelieveNoThanksOfWhoDoesNotKnowTheSequenceNumbers) {
  word(roce::kSackConfirmationOpcode, roce::Psn(0x345678));
  word(roce::kSackConfirmationOpcode, roce::Psn(kNext + 1) - Sack::kPast);
  send_parts(kNext, 1, true);
  EXPECT_THAT(receipts(), IsEmpty());
}

TEST_F(UcReports, AreSeldomForWhoDoesNotUnderstand) {
  uint32_t told = 0;
  constexpr uint32_t kPackets = 1 << 15;
  for (uint32_t i = 0; i < kPackets; ++i) {
    send_parts(kNext + i, 1);
    told += static_cast<uint32_t>(receipts().size());
  }
  EXPECT_GE(told, ReportsOwed::kOften);
  EXPECT_LE(told, kPackets / 1000);
}

TEST_F(UcReports, AreForgottenWhenTheConnectionIs) {
  send_parts(kNext + 3, kWorthAReceipt);
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  EXPECT_THAT(receipts(), IsEmpty());
  send_parts(kNext, kWorthAReceipt);
  EXPECT_EQ(receipts().at(0).missing, 0u);
}

// ---- the sender

TEST_F(UcReports, AreWaitedForOnceAndNotByWhoSendsLittle) {
  post(IBV_WR_SEND, 4096);
  EXPECT_EQ(send_window(), 16u);
  EXPECT_EQ(e.qp->deadline(), kNever);
  post_much();
  const size_t window = send_window();
  EXPECT_GT(window, 16u);
  EXPECT_LT(window, 4096u);
  EXPECT_FALSE(e.qp->has_urgent());
  EXPECT_EQ(e.qp->deadline(), e.now + ReceiverDrivenFlow::kPatience);
  e.wait_for_timer();
  size_t sent = window + send_window();
  while (e.send_cq->empty() || sent < 4096) {
    const TimePoint before = e.now;
    ASSERT_NO_FATAL_FAILURE(e.wait_for_timer());
    EXPECT_LT(e.now - before, ReceiverDrivenFlow::kPatience) << "there is no other wait";
    sent += send_window();
  }
  EXPECT_EQ(sent, 4096u);
}

TEST_F(UcReports, LetTheNextPacketsLeave) {
  post_much();
  const auto window = static_cast<uint32_t>(send_window());
  e.now += std::chrono::milliseconds(1);
  report(kFirst + window / 2);
  EXPECT_TRUE(e.qp->has_urgent());
  const auto sent = e.transmitted();
  EXPECT_EQ(of(roce::kSackConfirmationOpcode, sent).size(), 1u) << "it is told that it is understood";
  EXPECT_EQ(sent.front().headers.psn, roce::Psn(kFirst + window) - Sack::kPast);
  EXPECT_GT(without_words(sent).size(), 1u);
  EXPECT_TRUE(std::ranges::any_of(without_words(sent), &SentPacket::asks));
  EXPECT_GT(e.path_number(kPathRoundTrip), 0u);
}

TEST_F(UcReports, AreAskedForOfWhoTellsOnly) {
  post_much();
  for (const SentPacket& p : e.transmitted()) EXPECT_FALSE(p.asks());
}

TEST_F(UcReports, OfWhatWasNotSentAreNotBelieved) {
  post_much();
  const auto window = static_cast<uint32_t>(send_window());
  report(kFirst + window + 1);
  report(kFirst - (1 << 21));
  EXPECT_FALSE(e.qp->has_urgent());
  EXPECT_EQ(e.qp->deadline(), e.now + ReceiverDrivenFlow::kPatience);
}

TEST_F(UcReports, ThatTellOfLossesMakeTheWindowSmaller) {
  post_much();
  auto last = kFirst + static_cast<uint32_t>(send_window());
  report(last);
  const uint64_t before = e.path_number(kPathWindow);
  last += static_cast<uint32_t>(send_window());
  report(last, 2);
  EXPECT_LT(e.path_number(kPathWindow), before);
}

TEST_F(UcReports, ThatStopComingAreNotWaitedForForLong) {
  post_much();
  report(kFirst + static_cast<uint32_t>(send_window()));
  const TimePoint begun = e.now;
  for (int i = 0; e.send_cq->empty(); ++i) {
    ASSERT_LT(i, 100000);
    send_window();
    if (!e.send_cq->empty() || e.qp->has_urgent()) continue;
    ASSERT_NO_FATAL_FAILURE(e.wait_for_timer());
  }
  EXPECT_LT(e.now - begun, std::chrono::seconds(3)) << "a mebibyte to a peer that is gone";
}

TEST_F(UcReports, ThatAreOldOrNoticesLeaveNobodyWaitingWithoutEnd) {
  post_much();
  const auto last = kFirst + static_cast<uint32_t>(send_window());
  report(last);
  send_window();
  report(last - 1);
  EXPECT_EQ(send_window(), 0u);
  ASSERT_NE(e.qp->deadline(), kNever);
  e.wait_for_timer();
  send_window();
  word(roce::kCnpOpcode);
  EXPECT_TRUE(e.qp->has_urgent() || e.qp->deadline() != kNever);
}

TEST_F(UcReports, AreNotNeededWhereNothingIsLost) {
  e.qp->enter(IBV_QPS_RESET);
  e.routes.route.traits.lossless = true;
  e.bring_up();
  post_much();
  EXPECT_EQ(send_window(), 4096u);
  send_parts(kNext, 2 * kWorthAReceipt);
  EXPECT_THAT(receipts(), IsEmpty());
}

// ---- switches that mark packets (IBTA volume 1, annex A17.9)

TEST_F(UcReports, AndNoticesGoToTheSenderOfMarkedPackets) {
  roce::Path path = path_between(e.attributes().path.destination, e.attributes().path.source);
  path.traffic_class = 3;
  const roce::Packet marked{packet(Op::kSendMiddle, kNext, data(kMtu)), data(kMtu)};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(e.qp->on_packet({marked, path, kMtu + roce::kBthBytes + roce::kIcrcBytes}, e.now),
              Verdict::kAccepted);
  }
  const auto notices = of(roce::kCnpOpcode, e.transmitted());
  ASSERT_EQ(notices.size(), 1u) << "one in a while";
  EXPECT_TRUE(e.qp->wants_ip_details()) << "or it would never see a mark";
  EXPECT_EQ(notices[0].headers.destination, e.attributes().destination);
  EXPECT_EQ(e.path_number(kPathMarkedPackets), 3u);
}

TEST_F(UcReports, AndNoticesSlowTheSenderDown) {
  post_much();
  report(kFirst + static_cast<uint32_t>(send_window()));
  const uint64_t before = e.path_number(kPathWindow);
  word(roce::kCnpOpcode);
  EXPECT_EQ(e.path_number(kPathCongestionNotices), 1u);
  EXPECT_LT(e.path_number(kPathWindow), before);
}

}  // namespace
}  // namespace verbena::transport
