// SPDX-License-Identifier: Apache-2.0
// The unreliable datagram service.
#include "adapter/transport/support/ud_test.h"

#include <algorithm>
#include <string>

#include "base/log.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;

class Ud : public UdTest {};

TEST_F(Ud, SendsEachRequestAsOneDatagramAndCompletesItAtOnce) {
  ibv_send_wr wr = request(100, IBV_SEND_SOLICITED);
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = htobe32(0x01020304);
  post(wr);
  post(1024);
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].headers.opcode, roce::make_opcode(roce::Service::kUd, Op::kSendOnlyImmediate));
  EXPECT_EQ(packets[0].headers.immediate, 0x01020304u);
  EXPECT_TRUE(packets[0].headers.solicited);
  EXPECT_EQ(packets[0].headers.destination, roce::Qpn(0x77));
  EXPECT_EQ(packets[0].headers.source, roce::Qpn(0x11));
  EXPECT_EQ(packets[0].headers.qkey, kQkey);
  EXPECT_EQ(packets[0].psn(), 0xffffffu);
  EXPECT_EQ(packets[0].path, path);
  EXPECT_EQ(packets[1].headers.opcode, roce::make_opcode(roce::Service::kUd, Op::kSendOnly));
  EXPECT_EQ(packets[1].psn(), 0u);
  EXPECT_TRUE(std::ranges::equal(packets[1].payload, local.bytes(0, 1024)));
  EXPECT_EQ(e.sent().wr_id, 1u);
  EXPECT_EQ(e.sent().status, IBV_WC_SUCCESS);
  EXPECT_EQ(e.qp->deadline(), kNever);
}

TEST_F(Ud, SendsEachDatagramWhereItsRequestSays) {
  post(10);
  path.destination = ipv4(33);
  post(10);
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].path.destination, ipv4(9));
  EXPECT_EQ(packets[1].path.destination, ipv4(33));
}

TEST_F(Ud, UsesItsOwnQkeyWhenTheRequestNamesAControlledOne) {
  ibv_send_wr wr = request(10);
  wr.wr.ud.remote_qkey = 0x80010000;
  post(wr);
  EXPECT_EQ(e.transmitted().at(0).headers.qkey, kQkey);
}

TEST_F(Ud, StopsItsSendQueueAtAnErrorAndGoesOnAfterIt) {
  post(10);
  ibv_send_wr bad = request(10);
  bad.sg_list->lkey = 0xdead;
  post(bad);
  post(10);
  EXPECT_EQ(e.transmitted().size(), 1u);
  EXPECT_EQ(e.qp->state(), IBV_QPS_SQE);
  EXPECT_EQ(e.sent().status, IBV_WC_SUCCESS);
  ibv_wc wc = e.sent();
  EXPECT_EQ(wc.wr_id, 2u);
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(e.sent().status, IBV_WC_WR_FLUSH_ERR);

  post(10);  // flushed too, until the application moves the QP out of SQE
  EXPECT_TRUE(e.qp->has_urgent());
  EXPECT_TRUE(e.transmitted().empty());
  EXPECT_EQ(e.sent().status, IBV_WC_WR_FLUSH_ERR);

  const std::vector<std::byte> payload(8);
  post_receive(100);
  EXPECT_EQ(receive(payload), Verdict::kAccepted) << "receiving goes on in SQE";
  EXPECT_EQ(e.received().status, IBV_WC_SUCCESS);

  e.qp->enter(IBV_QPS_RTS);
  post(10);
  EXPECT_EQ(e.transmitted().size(), 1u);
  EXPECT_EQ(e.sent().status, IBV_WC_SUCCESS);
}

TEST_F(Ud, RefusesADatagramLongerThanThePathTakes) {
  post(1025);
  EXPECT_TRUE(e.transmitted().empty());
  EXPECT_EQ(e.sent().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(e.qp->state(), IBV_QPS_SQE);
}

TEST_F(Ud, RefusesOtherOperations) {
  ibv_send_wr wr = request(10);
  wr.opcode = IBV_WR_RDMA_WRITE;
  post(wr);
  EXPECT_TRUE(e.transmitted().empty());
  EXPECT_EQ(e.sent().status, IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(Ud, WaitsWhenTheSinkIsFull) {
  for (int i = 0; i < 3; ++i) post(10);
  e.sink.room = 1;
  EXPECT_EQ(e.transmit(), TransmitResult::kBusy);
  EXPECT_EQ(e.sent().wr_id, 1u);
  EXPECT_TRUE(e.send_cq->empty());
  e.sink.room = -1;
  EXPECT_EQ(e.transmit(1), TransmitResult::kMore);
  EXPECT_EQ(e.transmit(), TransmitResult::kIdle);
  EXPECT_EQ(e.sink.packets.size(), 3u);
}

class UdToFullChannel : public UdTest {
 protected:
  UdToFullChannel() { e.routes.route.traits.lossless = true; }
  void post_to(uint8_t host) {
    path = path_between(ipv4(1), ipv4(host));
    post(10);
  }
};

// A stopped process, for example.
TEST_F(UdToFullChannel, LosesDatagramsAfterAWhileIfOthersWait) {
  e.sink.room = 0;
  for (int i = 0; i < 3; ++i) post_to(9);
  EXPECT_EQ(e.transmit(), TransmitResult::kBusy);
  e.now += std::chrono::milliseconds(1);
  post_to(8);
  post_to(9);
  const TimePoint given_up_at = e.qp->deadline();
  EXPECT_EQ(given_up_at, e.now - std::chrono::milliseconds(1) + HoldBudget::kMax);
  e.now = given_up_at;
  e.qp->on_timer(e.now);
  EXPECT_TRUE(e.qp->has_urgent());
  EXPECT_EQ(e.transmit(), TransmitResult::kIdle) << "the budget is used up, so the others do not wait at all";
  EXPECT_EQ(e.qp->deadline(), kNever);
  EXPECT_EQ(e.sink.packets.size(), 0u);
  EXPECT_EQ(e.qp->send_queue().waiting(), 0u);
  e.sink.room = -1;
  post_to(8);
  e.transmit();
  EXPECT_EQ(e.sink.packets.size(), 1u);
}

TEST_F(UdToFullChannel, WaitsForTheOnlyReceiver) {
  e.sink.room = 0;
  for (int i = 0; i < 3; ++i) post_to(9);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(e.transmit(), TransmitResult::kBusy);
    ASSERT_NO_FATAL_FAILURE(e.wait_for_timer());
  }
  e.sink.room = -1;
  EXPECT_EQ(e.transmit(), TransmitResult::kIdle);
  EXPECT_EQ(e.sink.packets.size(), 3u);
}

// A process that does not answer when it is offered a channel, where there is no wire.
TEST_F(UdToFullChannel, GivesUpARouteThatDoesNotComeIfOthersWait) {
  e.routes.route.port = Route::kNoPort;
  e.routes.coming = true;
  post_to(9);
  post_to(8);
  const TimePoint begun = e.now;
  while (!e.qp->send_queue().empty() && e.now - begun < 2 * HoldBudget::kMax) {
    if (e.transmit() == TransmitResult::kPaced) {
      ASSERT_NO_FATAL_FAILURE(e.wait_for_timer());
    }
  }
  EXPECT_TRUE(e.qp->send_queue().empty());
  EXPECT_GE(e.now - begun, HoldBudget::kMax);
}

// Otherwise the timer comes back in each step of its wheel for as long as the port is full.
TEST_F(Ud, SetsNoTimerWhileItWaitsForThePort) {
  e.routes.route.port = Route::kNoPort;
  e.routes.coming = true;
  e.sink.room = 0;
  path = path_between(ipv4(1), ipv4(9));
  post(10);
  path = path_between(ipv4(1), ipv4(8));
  post(10);
  const TimePoint begun = e.now;
  TransmitResult result = e.transmit();
  for (; result == TransmitResult::kPaced && e.now - begun < 2 * HoldBudget::kMax; result = e.transmit()) {
    ASSERT_NO_FATAL_FAILURE(e.wait_for_timer());
  }
  EXPECT_GE(e.now - begun, HoldBudget::kMax);
  EXPECT_EQ(result, TransmitResult::kBusy);
  EXPECT_EQ(e.qp->deadline(), kNever);
}

TEST(HoldBudget, IsUsedUpByWaitingAndEarnedBySending) {
  HoldBudget budget;
  TimePoint now{std::chrono::hours(1)};
  budget.begin(now);
  EXPECT_EQ(budget.until(), now + HoldBudget::kMax);
  budget.begin(now + std::chrono::milliseconds(9));
  EXPECT_EQ(budget.until(), now + HoldBudget::kMax) << "it still waits";
  now += std::chrono::milliseconds(100);
  budget.end(now);
  EXPECT_EQ(budget.until(), kNever);
  now += std::chrono::milliseconds(10);
  budget.begin(now);
  EXPECT_EQ(budget.until(), now + HoldBudget::kMax - std::chrono::milliseconds(100 - 3 * 10));
}

TEST_F(Ud, StopsInSqdAndSaysSo) {
  e.attributes().notify_drained = true;
  post(10);
  e.qp->enter(IBV_QPS_SQD);
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_SQ_DRAINED));
  EXPECT_FALSE(e.qp->has_urgent());
  EXPECT_TRUE(e.transmitted().empty());
  e.qp->enter(IBV_QPS_RTS);
  EXPECT_EQ(e.transmitted().size(), 1u);
}

// ---- receiving

TEST_F(Ud, PutsAnIpv4HeaderInFrontOfADatagram) {
  const std::vector<std::byte> payload(101, std::byte{0x5a});
  post_receive(200);
  roce::Path from = path_between(ipv4(9), ipv4(1));
  from.traffic_class = 0x68;
  from.hop_limit = 63;
  receive(datagram(payload), payload, from);
  const ibv_wc wc = e.received();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.byte_len, 40u + 101);
  EXPECT_EQ(wc.src_qp, 0x99u);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_GRH));
  EXPECT_EQ(wc.sl, 2) << "RoCEv2 over IPv4";
  const auto* grh = reinterpret_cast<const uint8_t*>(inbox.data());
  EXPECT_TRUE(std::all_of(grh, grh + 20, [](uint8_t b) { return b == 0; }));
  const uint8_t* ip = grh + 20;
  EXPECT_EQ(ip[0], 0x45);
  EXPECT_EQ(ip[1], 0x68);
  // IP, UDP, BTH, DETH, payload, padding, ICRC
  EXPECT_EQ(load_be<uint16_t>(ip + 2), 20 + 8 + 12 + 8 + 101 + 3 + 4);
  EXPECT_EQ(ip[8], 63);
  EXPECT_EQ(ip[9], 17);
  EXPECT_EQ(std::memcmp(ip + 12, ipv4(9).ipv4(), 4), 0);
  EXPECT_EQ(std::memcmp(ip + 16, ipv4(1).ipv4(), 4), 0);
  uint32_t sum = 0;
  for (int i = 0; i < 20; i += 2) sum += load_be<uint16_t>(ip + i);
  EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu)
      << "the header's checksum, by which it is told from an IPv6 one";
  EXPECT_TRUE(std::ranges::equal(inbox.bytes(40, 101), payload));
}

TEST_F(Ud, PutsAnIpv6HeaderInFrontOfADatagram) {
  const std::vector<std::byte> payload(8, std::byte{0x5a});
  post_receive(200);
  roce::Path from;
  from.source.bytes = {0xfd, 1};
  from.destination.bytes = {0xfd, 2};
  from.flow_label = 0xabcde;
  from.traffic_class = 0x12;
  from.hop_limit = 9;
  receive(datagram(payload), payload, from);
  EXPECT_EQ(e.received().sl, 1) << "RoCEv2 over IPv6";
  const auto* grh = reinterpret_cast<const uint8_t*>(inbox.data());
  EXPECT_EQ(load_be<uint32_t>(grh), 0x612abcdeu);
  EXPECT_EQ(load_be<uint16_t>(grh + 4), 8 + 12 + 8 + 8 + 4);
  EXPECT_EQ(grh[6], 17);
  EXPECT_EQ(grh[7], 9);
  EXPECT_EQ(std::memcmp(grh + 8, from.source.bytes.data(), 16), 0);
  EXPECT_EQ(std::memcmp(grh + 24, from.destination.bytes.data(), 16), 0);
}

TEST_F(Ud, GivesTheImmediateAndWakesForSolicitedDatagrams) {
  post_receive(200);
  EXPECT_EQ(e.recv_cq->arm(true), queues::CompletionQueue::Event::kNone);
  roce::Headers headers = datagram({});
  headers.opcode = roce::make_opcode(roce::Service::kUd, Op::kSendOnlyImmediate);
  headers.immediate = 7;
  headers.solicited = true;
  receive(headers, {}, path_between(ipv4(9), ipv4(1)));
  const ibv_wc wc = e.received();
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_GRH | IBV_WC_WITH_IMM));
  EXPECT_EQ(wc.imm_data, htobe32(7));
  EXPECT_EQ(wc.byte_len, 40u);
  EXPECT_EQ(e.log.completion_events, 1);
}

TEST_F(Ud, DropsADatagramWithAnotherQkey) {
  post_receive(200);
  receive({}, kQkey + 1);
  EXPECT_TRUE(e.recv_cq->empty());
  EXPECT_EQ(e.counter(kDroppedDatagrams), 1u);
}

TEST_F(Ud, DropsADatagramWithoutAReceive) {
  receive({});
  EXPECT_EQ(e.counter(kDroppedDatagrams), 1u);
  post_receive(200);
  EXPECT_TRUE(e.recv_cq->empty());
  receive({});
  EXPECT_EQ(e.received().status, IBV_WC_SUCCESS);
}

TEST_F(Ud, DropsADatagramThatIsTooLongForItsReceive) {
  // Linux rxe does the same: a stranger's datagram is no error of the application.
  const std::vector<std::byte> payload(100);
  post_receive(139);
  post_receive(140);
  receive(payload);
  EXPECT_TRUE(e.recv_cq->empty());
  EXPECT_EQ(e.counter(kDroppedDatagrams), 1u);
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
  EXPECT_EQ(receive(std::span(payload).first(99)), Verdict::kAccepted);
  EXPECT_EQ(e.received().wr_id, 1u) << "the receive is still there";
}

TEST_F(Ud, SaysOnceInTheLogWhyItDropsDatagrams) {
  const LogLevel before = log_level();
  set_log_level(LogLevel::kError);
  testing::internal::CaptureStderr();
  post_receive(60);
  for (int i = 0; i < 3; ++i) receive({}, kQkey + 1);
  for (int i = 0; i < 3; ++i) receive(std::vector<std::byte>(32));
  const std::string said = testing::internal::GetCapturedStderr();
  set_log_level(before);
  EXPECT_THAT(said, testing::HasSubstr("QP 0x000011: a message of QP 0x000099 at"));
  EXPECT_THAT(said, testing::HasSubstr("its Q_Key is 0x11111112, and this queue pair's 0x11111111"));
  EXPECT_THAT(said,
              testing::HasSubstr("32 bytes behind 40 of the GRH, and the receive request has room for 60"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 2);
}

TEST_F(Ud, FailsWhenAReceiveNamesMemoryThatItMayNotWrite) {
  Buffer& constant = e.memory.add(200, 0);
  ibv_sge sge = constant.sge();
  ibv_recv_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ASSERT_TRUE(post_recv(*e.qp, wr));
  post_receive(200);
  receive({});
  EXPECT_EQ(e.received().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(e.received().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
}

TEST_F(Ud, TakesNothingOfAnotherServiceOrPartition) {
  post_receive(200);
  roce::Headers headers = datagram({});
  headers.opcode = roce::make_opcode(roce::Service::kRc, Op::kSendOnly);
  EXPECT_EQ(receive(headers, {}, path), Verdict::kWrongService);
  headers = datagram({});
  headers.pkey = 0x8001;
  EXPECT_EQ(receive(headers, {}, path), Verdict::kBadPkey);
}

}  // namespace
}  // namespace verbena::transport
