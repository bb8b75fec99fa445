// SPDX-License-Identifier: Apache-2.0
// ECN marks by switches, and their effects at both ends: CNPs and a lower rate (IBTA volume 1, annex A17.9).
#include "adapter/transport/congestion_notices.h"

#include <gmock/gmock.h>

#include "adapter/transport/support/requester_test.h"

namespace verbena::transport {
namespace {

using std::chrono::microseconds;
using testing::ElementsAre;
using testing::IsEmpty;

class CongestionNotice : public RequesterTest {
 protected:
  void receive_send(uint32_t psn, uint8_t traffic_class) {
    post_receive();
    roce::Headers headers = rc_headers(Operation::kSendOnly, psn);
    roce::Path path = path_between(e.attributes().path.destination, e.attributes().path.source);
    path.traffic_class = traffic_class;
    const roce::Packet packet{headers, {}};
    EXPECT_EQ(e.qp->on_packet({packet, path, roce::kBthBytes + roce::kIcrcBytes}, e.now), Verdict::kAccepted);
  }
  std::vector<SentPacket> notices() {
    std::vector<SentPacket> all = e.transmitted();
    std::erase_if(all, [](const SentPacket& p) { return p.headers.opcode != roce::kCnpOpcode; });
    return all;
  }
  void post_receive() {
    ibv_recv_wr wr{};
    ASSERT_TRUE(post_recv(*e.qp, wr));
  }
};

TEST_F(CongestionNotice, GoesToTheSenderOfAMarkedPacket) {
  receive_send(200, 3);
  EXPECT_TRUE(e.qp->has_urgent());
  const auto sent = notices();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent[0].headers.becn);
  EXPECT_EQ(sent[0].headers.destination, e.attributes().destination);
  EXPECT_EQ(sent[0].psn(), 0u);
  EXPECT_FALSE(sent[0].asks());
  EXPECT_THAT(sent[0].payload, testing::Each(std::byte{0}));
  EXPECT_EQ(sent[0].payload.size(), 16u);
}

TEST_F(CongestionNotice, IsNotSentForPacketsThatOnlyMightBeMarked) {
  uint32_t psn = 200;
  for (const int traffic_class : {0, 1, 2, 0xfc}) receive_send(psn++, static_cast<uint8_t>(traffic_class));
  EXPECT_THAT(notices(), IsEmpty());
}

TEST_F(CongestionNotice, IsCountedOnThePathAsMarkedPacketsAre) {
  for (uint32_t psn = 200; psn < 205; ++psn) receive_send(psn, 3);
  notice();
  EXPECT_EQ(e.path_number(kPathMarkedPackets), 5u);
  EXPECT_EQ(e.path_number(kPathCongestionNotices), 1u);
}

TEST_F(CongestionNotice, IsSentOnceInAWhile) {
  for (uint32_t psn = 200; psn < 210; ++psn) receive_send(psn, 3);
  EXPECT_EQ(notices().size(), 1u);
  e.now += CongestionNotices::kInterval;
  receive_send(210, 3);
  EXPECT_EQ(notices().size(), 1u);
}

TEST_F(CongestionNotice, IsNeverAnsweredByOne) {
  roce::Headers headers;
  headers.opcode = roce::kCnpOpcode;
  headers.destination = roce::Qpn(0x11);
  roce::Path path = path_between(e.attributes().path.destination, e.attributes().path.source);
  path.traffic_class = 3;
  const roce::Packet packet{headers, {}};
  EXPECT_EQ(e.qp->on_packet({packet, path, 32}, e.now), Verdict::kAccepted);
  EXPECT_FALSE(e.qp->has_urgent());
}

TEST_F(CongestionNotice, MakesASenderSlower) {
  for (int i = 0; i < 8; ++i) post(IBV_WR_SEND, 200 * 256);
  const size_t window = e.transmitted().size();
  ASSERT_LT(window, 8 * 200u);
  notice();
  acknowledge(100 + static_cast<uint32_t>(window) - 1);
  EXPECT_LT(e.transmitted().size(), window);
}

TEST_F(CongestionNotice, IsNothingToAQueuePairThatCannotSend) {
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_FALSE(e.qp->has_urgent());
}

}  // namespace
}  // namespace verbena::transport
