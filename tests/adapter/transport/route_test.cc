// SPDX-License-Identifier: Apache-2.0
// QPs and their routes: when a route is looked up, and the effect of its traits on what QPs send.
#include "adapter/transport/route.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/net/udp/send_run.h"
#include "adapter/transport/support/endpoint.h"
#include "adapter/transport/support/test_routes.h"
#include "adapter/transport/uc.h"

namespace verbena::transport {
namespace {

using testing::SizeIs;

constexpr uint32_t kMtu = 1024;

// A route that takes few packets at a time, with a high charge for each.
constexpr Traits kNarrow{.max_payload = 4096,
                         .burst_bytes = 16 * 1024,
                         .burst_packets = 8,
                         .charge_per_packet = 1024,
                         .blind_burst_bytes = 16 * 1024,
                         .blind_bytes_per_microsecond = 100};

template <class Qp>
class Routed : public testing::Test {
 protected:
  void bring_up(const Traits& traits, uint32_t mtu = kMtu) {
    e.routes.route.traits = traits;
    e.attributes().path_mtu = mtu;
    e.bring_up();
  }
  void post(ibv_wr_opcode opcode, uint32_t length, const roce::Path* path = nullptr, uint32_t qpn = 0x22) {
    ibv_sge sge = memory.sge(0, length);
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (path != nullptr) wr.wr.ud.remote_qpn = qpn;
    ASSERT_TRUE(post_send(*e.qp, wr, path));
  }

  explicit Routed(const EndpointOptions& options = {}) : e(options) {}

  Endpoint<Qp> e;
  Buffer& memory = e.memory.add(1 << 20);
};

using RoutedRc = Routed<RcQueuePair>;
struct RoutedUc : Routed<UcQueuePair> {
  RoutedUc() : Routed({.repairs = false}) {}
};
using RoutedUd = Routed<UdQueuePair>;

// ---- traits

TEST(Traits, ABurstHoldsAsManyPacketsAsItsBytesAndItsCountAllow) {
  EXPECT_EQ(kNarrow.packets_in_burst(256), 8u);
  EXPECT_EQ(kNarrow.packets_in_burst(4096), 3u) << "each has headers, too";
  EXPECT_EQ(kNarrow.packets_in_burst(64 * 1024), 1u) << "one packet always leaves";
  EXPECT_EQ(kNarrow.burst_charge(), 24u * 1024);
}

TEST(Traits, OfUdpAreThoseOfASuperPacket) {
  constexpr std::array<std::array<uint32_t, 2>, 5> kPackets{
      {{256, 64}, {512, 64}, {1024, 62}, {2048, 31}, {4096, 15}}};
  for (const auto& [mtu, packets] : kPackets) {
    EXPECT_EQ(net::kUdpTraits.packets_in_burst(mtu), packets) << mtu;
    // READ responses: the first and the last also have an AETH.
    EXPECT_LE(packets * (mtu + roce::kBthBytes + roce::kIcrcBytes) + 2 * sizeof(uint32_t),
              net::kMaxSuperPacketBytes);
  }
}

// ---- when the route is looked up

TEST_F(RoutedRc, IsFoundAtTheTransitionToReadyToReceive) {
  e.bring_up(IBV_QPS_INIT);
  EXPECT_EQ(&e.qp->route(), &no_route());
  e.qp->enter(IBV_QPS_RTR);
  EXPECT_EQ(&e.qp->route(), &e.routes.route);
  EXPECT_EQ(e.routes.asked, 1);
}

TEST_F(RoutedRc, IsKeptUntilReset) {
  e.bring_up();
  e.qp->enter(IBV_QPS_SQD);
  e.attributes().path = path_between(ipv4(1), ipv4(7));  // a drained QP may get a new path
  e.qp->enter(IBV_QPS_RTS);
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_EQ(e.routes.asked, 1);
  EXPECT_EQ(&e.qp->route(), &e.routes.route);
  e.qp->enter(IBV_QPS_RESET);
  EXPECT_EQ(&e.qp->route(), &no_route());
  e.bring_up();
  EXPECT_EQ(e.routes.asked, 2);
}

TEST_F(RoutedUc, IsFoundAtTheTransitionToReadyToReceive) {
  e.bring_up(IBV_QPS_RTR);
  EXPECT_EQ(&e.qp->route(), &e.routes.route);
}

TEST_F(RoutedUd, IsFoundWhenAHandleIsFirstUsed) {
  const roce::Path one = path_between(ipv4(1), ipv4(2));
  const roce::Path other = path_between(ipv4(1), ipv4(3));
  bring_up(kNarrow);
  EXPECT_EQ(e.routes.asked, 0);
  for (int i = 0; i < 3; ++i) post(IBV_WR_SEND, 10, &one);
  e.transmit();
  EXPECT_EQ(e.routes.asked, 1);
  post(IBV_WR_SEND, 10, &other);
  e.transmit();
  EXPECT_EQ(e.routes.asked, 2);
}

TEST_F(RoutedUd, IsAnotherForAnotherProcessAtTheSameAddress) {
  const roce::Path path = path_between(ipv4(1), ipv4(2));
  bring_up(kNarrow);
  post(IBV_WR_SEND, 10, &path, roce::Qpn::in_slot(3, 5).value());
  post(IBV_WR_SEND, 10, &path, roce::Qpn::in_slot(3, 6).value());
  e.transmit();
  EXPECT_EQ(e.routes.asked, 1);
  post(IBV_WR_SEND, 10, &path, roce::Qpn::in_slot(4, 5).value());
  e.transmit();
  EXPECT_EQ(e.routes.asked, 2);
}

// ---- effects of the traits

TEST_F(RoutedRc, BoundsWhatIsInFlightByTheBurst) {
  bring_up(kNarrow);
  post(IBV_WR_RDMA_WRITE, 1 << 20);
  const auto packets = e.transmitted();
  // Two bursts of 24 KiB; each packet counts 2 KiB with its charge. Only whole runs of 8 packets are sent.
  EXPECT_THAT(packets, SizeIs(24));
  EXPECT_TRUE(packets.back().asks());
}

TEST_F(RoutedRc, AsksForReadDataInBursts) {
  bring_up(kNarrow, 4096);
  e.attributes().max_rd_atomic = 16;
  post(IBV_WR_RDMA_READ, 64 * 1024);
  const auto packets = e.transmitted();
  ASSERT_FALSE(packets.empty());
  for (const SentPacket& packet : packets) EXPECT_EQ(packet.headers.dma_length, 3u * 4096);
}

TEST_F(RoutedRc, NeedsNoBurstsAtAll) {
  bring_up({.max_payload = 4096});
  post(IBV_WR_RDMA_WRITE, 1 << 20);
  EXPECT_THAT(e.transmitted(), SizeIs(4)) << "a few packets may always be in flight";
}

TEST_F(RoutedUc, IsPacedAsTheTraitsSay) {
  bring_up(kNarrow);
  post(IBV_WR_SEND, 1 << 20);
  EXPECT_EQ(e.transmit(), TransmitResult::kPaced);
  EXPECT_THAT(e.sink.packets, SizeIs(8)) << "16 KiB, at 2 KiB each with its charge";
  // Half the burst, at 100 bytes per microsecond.
  EXPECT_NEAR(static_cast<double>((e.qp->deadline() - e.now) / std::chrono::microseconds(1)), 82, 2);
}

TEST_F(RoutedUc, IsNotPacedWhereNothingIsLost) {
  Traits lossless = kNarrow;
  lossless.lossless = true;
  bring_up(lossless);
  post(IBV_WR_SEND, 1 << 20);
  EXPECT_EQ(e.transmit(), TransmitResult::kIdle);
  EXPECT_THAT(e.sink.packets, SizeIs(1024));
}

TEST_F(RoutedRc, WithoutOneItLosesWhatItSends) {
  e.routes.route = no_route();
  e.bring_up();
  post(IBV_WR_SEND, 100);
  EXPECT_EQ(e.transmit(), TransmitResult::kIdle);
  EXPECT_TRUE(e.qp->has_outstanding());
  EXPECT_THAT(e.sink.packets, SizeIs(0));
}

}  // namespace
}  // namespace verbena::transport
