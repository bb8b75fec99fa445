// SPDX-License-Identifier: Apache-2.0
// The octets of packets as port counters count them: from the IP header to the ICRC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/transport/packet_io.h"
#include "adapter/transport/support/endpoint.h"

namespace verbena::transport {
namespace {

using Op = roce::Operation;

constexpr uint32_t kAround = 20 + 8 + 12 + 4;  // IPv4, UDP, BTH, ICRC

// The octets of a packet from the IPv4 header to the ICRC, computed from its encoded length.
uint64_t encoded_octets(const SentPacket& packet) {
  return 20 + 8 + roce::header_bytes(packet.headers.opcode) + packet.payload.size() + packet.headers.pad + 4;
}

TEST(Octets, AreHeadersPayloadPaddingAndIcrc) {
  Endpoint<RcQueuePair> e;
  e.bring_up();
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ibv_sge piece = e.memory.add(5).sge();
  wr.sg_list = &piece;
  wr.num_sge = 1;
  post_send(*e.qp, wr);
  e.transmit();
  EXPECT_EQ(e.counter(kSentOctets), kAround + 5u + 3u);
  EXPECT_EQ(e.counter(kSentBytes), 5u) << "payload alone";
}

TEST(Octets, OfALongMessageAreThoseOfItsPackets) {
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    Endpoint<RcQueuePair> e;
    e.bring_up();
    ibv_sge piece = e.memory.add(3 * 256 + 1).sge();
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    post_send(*e.qp, wr);
    uint64_t octets = 0;
    for (const SentPacket& packet : e.transmitted()) octets += encoded_octets(packet);
    EXPECT_EQ(e.counter(kSentOctets), octets) << opcode;
    EXPECT_GT(octets, 4 * kAround + 3 * 256u);
  }
}

TEST(Octets, AreCountedOfWhatComesToo) {
  Endpoint<RcQueuePair> e;
  e.bring_up();
  post_recv(*e.qp, {});
  roce::Headers headers = rc_headers(Op::kSendOnly, 200);
  headers.ack_request = true;
  e.receive(headers);
  EXPECT_EQ(e.counter(kReceivedOctets), kAround);
  e.transmit();
  EXPECT_EQ(e.counter(kSentOctets), kAround + 4u) << "an acknowledgement";
}

TEST(Octets, OfIpv6HaveALargerHeader) {
  roce::Path path;
  path.destination.bytes = {0x20, 0x01, 0x0d, 0xb8};
  EXPECT_EQ(least_octets(path), kAround + 20);
}

TEST(Octets, OfMessagesThatTravelTogetherAreThoseOfEach) {
  const roce::Path path = path_between(ipv4(1), ipv4(2));
  const std::array<uint8_t, 3> lengths{1, 4, 0};
  EXPECT_EQ(octets_of(path, roce::make_opcode(roce::Service::kRc, Op::kSendOnly), lengths), 3 * kAround + 8u);
}

}  // namespace
}  // namespace verbena::transport
