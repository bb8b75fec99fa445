// SPDX-License-Identifier: Apache-2.0
// Reports that receivers of datagrams send on request, and the rate of senders that get them.
#include <algorithm>
#include <array>

#include "adapter/transport/control_packets.h"
#include "adapter/transport/receiver_driven_flow.h"
#include "adapter/transport/support/ud_test.h"

namespace verbena::transport {
namespace {

using std::chrono::milliseconds;
using testing::IsEmpty;
using testing::SizeIs;

TEST(ReportRequest, SaysWhatItWasWrittenWith) {
  std::array<std::byte, ReportRequest::kBytes> payload;
  ReportRequest{roce::Psn(0xfffffe), roce::Qpn(0x123456), 0x89abcdef}.write(payload);
  const auto read = ReportRequest::read(payload);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->next, roce::Psn(0xfffffe));
  EXPECT_EQ(read->sender, roce::Qpn(0x123456));
  EXPECT_EQ(read->qkey, 0x89abcdefu);
  EXPECT_FALSE(ReportRequest::read(std::span(payload).first(11)));
}

TEST(DatagramReport, SaysWhatItWasWrittenWith) {
  std::array<std::byte, DatagramReport::kBytes> payload;
  const ReceiverReport report{.expected = roce::Psn(77), .missing = 5, .incast = {.senders = 16, .dip = 5}};
  DatagramReport{report, roce::Qpn(0x123456)}.write(payload);
  const auto read = DatagramReport::read(payload);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->report.expected, roce::Psn(77));
  EXPECT_EQ(read->report.missing, 5u);
  EXPECT_EQ(read->report.incast.senders, 16u);
  EXPECT_EQ(read->receiver, roce::Qpn(0x123456));
  EXPECT_FALSE(DatagramReport::read(std::span(payload).first(11)));
}

TEST(RecentPeers, ForgetWhoWasNotLookedForForLongest) {
  RecentPeers<int> peers;
  constexpr uint32_t kPeers = 1000;
  for (uint32_t i = 0; i < kPeers; ++i) {
    const auto [value, is_new] = peers.get(ipv4(1), roce::Qpn(i));
    EXPECT_TRUE(is_new);
    EXPECT_EQ(*value, 0) << "nothing is left of who was there before";
    *value = static_cast<int>(i);
    ASSERT_NE(peers.find(ipv4(1), roce::Qpn(0)), nullptr) << "it is looked for all the time";
  }
  uint32_t known = 0;
  for (uint32_t i = 0; i < kPeers; ++i) {
    const int* const value = peers.find(ipv4(1), roce::Qpn(i));
    if (value == nullptr) continue;
    ++known;
    EXPECT_EQ(*value, static_cast<int>(i));
  }
  EXPECT_EQ(known, RecentPeers<int>::kPlaces);
  EXPECT_EQ(peers.find(ipv4(2), roce::Qpn(kPeers - 1)), nullptr);
}

class UdReports : public UdTest {
 protected:
  static std::vector<SentPacket> of(uint8_t opcode, std::vector<SentPacket> packets) {
    std::erase_if(packets, [=](const SentPacket& p) { return p.headers.opcode != opcode; });
    return packets;
  }

  // ---- as the receiver's peer

  void datagrams(uint32_t count, uint32_t from = 0x99) {
    for (uint32_t i = 0; i < count; ++i) {
      roce::Headers headers = datagram(payload_);
      headers.source = roce::Qpn(from);
      EXPECT_EQ(receive(headers, payload_, peer_), Verdict::kAccepted);
    }
  }
  void ask(uint32_t next, uint32_t from = 0x99, uint32_t qkey = kQkey) {
    std::array<std::byte, ReportRequest::kBytes> payload;
    ReportRequest{roce::Psn(next), roce::Qpn(from), qkey}.write(payload);
    word(roce::kReportRequestOpcode, payload);
  }
  std::vector<DatagramReport> reports() {
    std::vector<DatagramReport> all;
    for (const SentPacket& p : of(roce::kReceiverReportOpcode, e.transmitted())) {
      all.push_back(*DatagramReport::read(p.payload));
      EXPECT_EQ(all.back().receiver, roce::Qpn(0x11));
      EXPECT_EQ(p.headers.source, roce::Qpn(0x11));
      EXPECT_EQ(p.path.destination, ipv4(9));
      EXPECT_EQ(p.path.source, ipv4(1));
    }
    return all;
  }

  // ---- as the sender's peer

  void post_much(uint32_t count = 64) {
    for (uint32_t i = 0; i < count; ++i) post(kDatagram);
  }
  // Keeps requests posted until the QP holds back or has sent `most` datagrams. Returns the number sent.
  uint32_t send_up_to(uint32_t most) {
    uint32_t sent = 0;
    while (sent < most) {
      if (e.qp->send_queue().empty()) post_much();
      const auto packets = e.transmitted();
      const auto requests = of(roce::kReportRequestOpcode, packets);
      requests_.insert(requests_.end(), requests.begin(), requests.end());
      ibv_wc wc;
      while (e.send_cq->poll(1, &wc) == 1) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      const size_t left = packets.size() - requests.size();
      if (left == 0) break;
      sent += static_cast<uint32_t>(left);
    }
    return sent;
  }
  // Returns the report requests sent since the last call.
  std::vector<ReportRequest> requests() {
    std::vector<ReportRequest> all;
    for (const SentPacket& p : std::exchange(requests_, {})) {
      all.push_back(*ReportRequest::read(p.payload));
      EXPECT_EQ(p.headers.destination, roce::Qpn(0x77));
      EXPECT_EQ(all.back().sender, roce::Qpn(0x11));
      EXPECT_EQ(p.headers.source, roce::Qpn(0x11));
      EXPECT_EQ(all.back().qkey, kQkey);
    }
    return all;
  }
  void report(roce::Psn expected, uint32_t missing = 0, uint32_t receiver = 0x77) {
    std::array<std::byte, DatagramReport::kBytes> payload;
    const ReceiverReport report{.expected = expected, .missing = missing, .incast = {}};
    DatagramReport{report, roce::Qpn(receiver)}.write(payload);
    word(roce::kReceiverReportOpcode, payload);
  }
  void word(uint8_t opcode, ConstBytes payload = {}) {
    roce::Headers headers;
    headers.opcode = opcode;
    headers.destination = roce::Qpn(0x11);
    EXPECT_EQ(receive(headers, payload, peer_), Verdict::kAccepted);
  }
  // Reports everything that was sent, so that the sender continues.
  void answer() {
    const auto asked = requests();
    ASSERT_FALSE(asked.empty());
    report(asked.back().next);
  }
  static constexpr uint32_t kDatagram = 1024;
  static constexpr uint32_t kFirst = DatagramFlow::kUntoldBytes / kDatagram;

  roce::Path peer_ = path_between(ipv4(9), ipv4(1));

 private:
  const std::vector<std::byte> payload_ = std::vector<std::byte>(64);
  std::vector<SentPacket> requests_;
};

// ---- the receiver

TEST_F(UdReports, GoToWhoAsks) {
  datagrams(3);
  EXPECT_THAT(reports(), IsEmpty());
  ask(100);
  EXPECT_TRUE(e.qp->has_urgent());
  auto told = reports();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].report.expected, roce::Psn(100));
  EXPECT_EQ(told[0].report.missing, 0u) << "of what came before nothing is known";
  EXPECT_FALSE(e.qp->has_urgent());
}

// Any user of the host can send a request with any queue pair as its sender.
TEST_F(UdReports, AskForNoRouteToWhoAsks) {
  const int before = e.routes.asked;
  ask(100);
  EXPECT_THAT(reports(), SizeIs(1));
  e.sink.room = 0;
  ask(200);
  EXPECT_EQ(e.transmit(), TransmitResult::kBusy);
  EXPECT_EQ(e.routes.asked, before);
}

TEST_F(UdReports, CountWhatIsMissingAlsoWhereThereIsNoRequestToReceiveWith) {
  ask(100);
  datagrams(3);
  ask(105);
  datagrams(2);  // were late
  ask(107);
  EXPECT_EQ(reports().back().report.missing, 2u);
  ask(107);
  datagrams(2);
  ask(107);
  EXPECT_EQ(reports().back().report.missing, 0u);
}

TEST_F(UdReports, CountEachSenderForItself) {
  ask(100, 0x98);
  ask(500, 0x99);
  datagrams(2, 0x98);
  datagrams(1, 0x99);
  ask(102, 0x98);
  ask(504, 0x99);
  auto told = reports();
  ASSERT_THAT(told, SizeIs(2));
  std::ranges::sort(told, {}, [](const DatagramReport& r) { return r.report.expected.value(); });
  EXPECT_EQ(told[0].report.missing, 0u);
  EXPECT_EQ(told[1].report.missing, 3u);
}

TEST_F(UdReports, BeginAgainWithASenderThatDoes) {
  ask(100);
  ask(0x700000);
  datagrams(1);
  ask(0x700001);
  ask(0x700000);  // was overtaken
  const auto told = reports();
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back().report.expected, roce::Psn(0x700001));
}

TEST_F(UdReports, AreNotForWhoMaySendNoDatagrams) {
  ask(100, 0x99, kQkey + 1);
  EXPECT_THAT(reports(), IsEmpty());
  word(roce::kReportRequestOpcode, std::vector<std::byte>(5));
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_F(UdReports, AndNoticesGoToTheSenderOfMarkedDatagrams) {
  peer_.traffic_class = 3;
  datagrams(3);
  const auto notices = of(roce::kCnpOpcode, e.transmitted());
  ASSERT_THAT(notices, SizeIs(1)) << "one in a while";
  EXPECT_EQ(notices[0].headers.destination, roce::Qpn(0x99));
  EXPECT_EQ(notices[0].path.destination, ipv4(9));
  EXPECT_EQ(notices[0].path.traffic_class, 0);
  EXPECT_EQ(e.path_number(kPathMarkedPackets), 3u);
}

TEST_F(UdReports, AreForgottenWhenTheQueuePairIsReset) {
  ask(100);
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  EXPECT_THAT(reports(), IsEmpty());
}

// ---- the sender

TEST_F(UdReports, AreNotAskedForByWhoSendsLittle) {
  for (uint32_t round = 0; round < 100; ++round) {
    for (uint32_t i = 1; i < kFirst; ++i) post(kDatagram);
    EXPECT_THAT(e.transmitted(), SizeIs(kFirst - 1));
    EXPECT_EQ(e.qp->deadline(), kNever);
    e.now += DatagramFlow::kUntoldTime + milliseconds(1);
    ibv_wc wc;
    while (e.send_cq->poll(1, &wc) == 1) continue;
  }
}

TEST_F(UdReports, AreAskedForAndWaitedForByWhoSendsMuch) {
  EXPECT_EQ(send_up_to(1000), kFirst);
  EXPECT_THAT(requests(), SizeIs(1));
  EXPECT_FALSE(e.qp->has_urgent());
  EXPECT_EQ(e.qp->deadline(), e.now + DatagramFlow::kPatience);
}

TEST_F(UdReports, ThatDoNotComeAreWaitedForTwiceAndThenNoMore) {
  uint32_t waits = 0;
  for (uint32_t sent = 0; sent < 20000;) {
    sent += send_up_to(20000);
    if (sent >= 20000) break;
    ++waits;
    ASSERT_NO_FATAL_FAILURE(e.wait_for_timer());
  }
  EXPECT_EQ(waits, DatagramFlow::kMaxWaits);
  EXPECT_THAT(requests(), SizeIs(testing::AllOf(testing::Ge(6u), testing::Le(12u)))) << "it asks, if seldom";
}

TEST_F(UdReports, LetAWindowLeave) {
  send_up_to(1000);
  e.now += milliseconds(1);
  answer();
  EXPECT_TRUE(e.qp->has_urgent());
  const uint32_t window = send_up_to(20000);
  EXPECT_GT(window, 4u);
  EXPECT_LT(window, 20000u);
  const auto asked = requests();
  ASSERT_FALSE(asked.empty());
  EXPECT_EQ(send_up_to(20000), 0u);
  e.now += milliseconds(1);
  report(asked.back().next);
  EXPECT_GT(send_up_to(20000), 0u);
  EXPECT_GT(e.path_number(kPathRoundTrip), 0u);
}

TEST_F(UdReports, ThatTellOfLossesMakeTheWindowSmaller) {
  send_up_to(1000);
  answer();
  send_up_to(20000);
  answer();
  const uint64_t before = e.path_number(kPathWindow);
  send_up_to(20000);
  report(requests().back().next, 2);
  EXPECT_LT(e.path_number(kPathWindow), before);
}

TEST_F(UdReports, OfWhatWasNotSentOrOfOthersAreNotBelieved) {
  send_up_to(1000);
  const roce::Psn next = requests().back().next;
  report(next + 1000);
  report(next - (1u << 20));
  report(next, 0, 0x78);
  word(roce::kReceiverReportOpcode, std::vector<std::byte>(11));
  EXPECT_FALSE(e.qp->has_urgent());
  peer_ = path_between(ipv4(10), ipv4(1));
  report(next);
  EXPECT_FALSE(e.qp->has_urgent());
}

TEST_F(UdReports, ThatStopComingAreNotWaitedForForLong) {
  send_up_to(1000);
  answer();
  const TimePoint begun = e.now;
  for (uint32_t sent = 0; sent < 20000;) {
    sent += send_up_to(20000);
    if (sent >= 20000) break;
    ASSERT_NO_FATAL_FAILURE(e.wait_for_timer());
  }
  EXPECT_LT(e.now - begun, std::chrono::seconds(1)) << "twenty megabytes to a peer that is gone";
}

TEST_F(UdReports, AreOfOneReceiverAndOthersAreSentToAsEver) {
  send_up_to(1000);
  answer();
  send_up_to(20000);
  ASSERT_NO_FATAL_FAILURE(answer());
  while (!e.qp->send_queue().empty()) {
    if (send_up_to(1) == 0) e.wait_for_timer();
  }
  path = path_between(ipv4(1), ipv4(33));
  for (uint32_t i = 0; i < kFirst; ++i) post(kDatagram);
  EXPECT_EQ(e.qp->deadline(), kNever);
  uint32_t left = 0;
  for (const SentPacket& p : e.transmitted()) left += p.path.destination == ipv4(33) ? 1 : 0;
  EXPECT_GE(left, kFirst);
}

TEST_F(UdReports, AreNotNeededWhereNothingIsLost) {
  e.qp->enter(IBV_QPS_RESET);
  e.routes.route.traits.lossless = true;
  e.bring_up();
  EXPECT_EQ(send_up_to(20000), 20000u + (64 - 20000 % 64) % 64);
  EXPECT_THAT(requests(), IsEmpty());
}

// The QP also sends to other peers over lossless routes. A report bounds only the route that it is about.
TEST_F(UdReports, BoundWhatGoesByTheWayThatTheyAreOf) {
  send_up_to(1000);
  e.now += milliseconds(1);
  Route memory = e.routes.route;
  memory.traits.lossless = true;
  std::swap(e.routes.route, memory);
  const roce::Path before = std::exchange(path, path_between(ipv4(1), ipv4(1)));
  e.now += DatagramFlow::kPatience;
  e.qp->on_timer(e.now);
  while (!e.qp->send_queue().empty()) send_up_to(1);
  post(kDatagram);
  EXPECT_EQ(send_up_to(1), 1u);
  ASSERT_NO_FATAL_FAILURE(answer());
  std::swap(e.routes.route, memory);
  path = before;
  EXPECT_LT(send_up_to(20000), 20000u);
}

// A repeated report request, sent before anything else to that peer.
TEST_F(UdReports, AreAskedForWithTheQkeyOfWhatIsToFollow) {
  send_up_to(1000);
  EXPECT_THAT(requests(), SizeIs(1));
  e.now += DatagramFlow::kPatience;
  e.qp->on_timer(e.now);
  while (!e.qp->send_queue().empty()) {
    if (send_up_to(1) == 0) e.wait_for_timer();
  }
  const roce::Path before = std::exchange(path, path_between(ipv4(1), ipv4(33)));
  post(kDatagram);
  send_up_to(1);
  path = before;
  e.now += DatagramFlow::kPatience;
  send_up_to(1000);
  EXPECT_FALSE(requests().empty()) << "each has the right Q_Key";
}

TEST_F(UdReports, AreNotAskedForOfAWholeGroup) {
  std::array<std::byte, ReportRequest::kBytes> payload;
  ReportRequest{roce::Psn(100), roce::Qpn(0x99), kQkey}.write(payload);
  roce::Headers headers;
  headers.opcode = roce::kReportRequestOpcode;
  headers.destination = roce::kMulticastQpn;
  EXPECT_EQ(receive(headers, payload, peer_), Verdict::kAccepted);
  EXPECT_THAT(reports(), IsEmpty());
}

// If the route back is full, that route has to have room again before the report is sent.
TEST_F(UdReports, WaitForTheWayThatTheyGo) {
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  EXPECT_EQ(e.qp->route().sink, no_route().sink) << "it has sent nothing";
  ask(100);
  e.sink.room = 0;
  EXPECT_EQ(e.transmit(), TransmitResult::kBusy);
  EXPECT_EQ(e.qp->route().sink, &e.sink);
  e.sink.room = -1;
  EXPECT_THAT(reports(), SizeIs(1));
}

TEST_F(UdReports, ThatAreRepeatedPostponeNothing) {
  send_up_to(1000);
  answer();
  send_up_to(20000);
  const roce::Psn told = requests().front().next - 1;
  report(told);
  send_up_to(20000);
  const TimePoint waits_until = e.qp->deadline();
  for (int i = 0; i < 5; ++i) {
    e.now += milliseconds(1);
    report(told);
    send_up_to(20000);
    EXPECT_EQ(e.qp->deadline(), waits_until);
  }
}

// A receiver that repeats one report without end counts as gone, as one that sends none.
TEST_F(UdReports, ThatConfirmNothingNewDoNotKeepTheSenderWaiting) {
  send_up_to(1000);
  answer();
  send_up_to(20000);
  const roce::Psn told = requests().front().next - 1;
  report(told);
  const TimePoint begun = e.now;
  for (uint32_t sent = 0; sent < 20000;) {
    sent += send_up_to(20000);
    if (sent >= 20000) break;
    ASSERT_NO_FATAL_FAILURE(e.wait_for_timer());
    report(told);
  }
  EXPECT_LT(e.now - begun, std::chrono::seconds(1));
}

// Its reports confirm one datagram at a time, as slowly as it likes.
TEST_F(UdReports, ThatComeSlowlyHoldUpOthersForAWhileOnly) {
  send_up_to(1000);
  answer();
  path = path_between(ipv4(1), ipv4(33));
  post(kDatagram);
  e.transmitted();
  path = path_between(ipv4(1), ipv4(9));
  const TimePoint begun = e.now;
  for (uint32_t sent = 0; sent < 2000;) {
    sent += send_up_to(2000);
    if (sent >= 2000) break;
    e.now += milliseconds(1);
    e.qp->on_timer(e.now);
    if ((e.now - begun) % milliseconds(10) == Duration(0))
      report(roce::Psn(0xffffff) + 300 + static_cast<uint32_t>((e.now - begun) / milliseconds(10)));
  }
  EXPECT_LT(e.now - begun, 2 * HoldBudget::kMax);
}

TEST_F(UdReports, AndNoticesSlowTheSenderDown) {
  send_up_to(1000);
  answer();
  send_up_to(20000);
  answer();
  const uint64_t before = e.path_number(kPathWindow);
  word(roce::kCnpOpcode);
  EXPECT_EQ(e.path_number(kPathCongestionNotices), 1u);
  send_up_to(20000);
  answer();
  EXPECT_LT(e.path_number(kPathWindow), before);
}

}  // namespace
}  // namespace verbena::transport
