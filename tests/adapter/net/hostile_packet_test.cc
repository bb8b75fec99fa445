// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include <gtest/gtest.h>
#include <poll.h>

#include "adapter/net/packets.h"
#include "base/random.h"

namespace verbena::net::testing {
namespace {

// Packets that a stranger may send: each is dropped, counted by its reason, and reaches no QP.
class HostilePacket : public ::testing::TestWithParam<const char*> {
 protected:
  void expect_drop(ConstBytes udp_payload, DropReason reason) {
    const Count& count = group_[1].counters().dropped[static_cast<size_t>(reason)];
    const uint64_t before = count;
    stranger_.send(udp_payload);
    ASSERT_TRUE(wait_for(group_[1].receive_fd(), POLLIN));
    group_[1].receive(collector_, 16);
    EXPECT_EQ(count, before + 1) << kDropReasonNames[static_cast<size_t>(reason)];
    EXPECT_TRUE(collector_.packets.empty());
  }

  std::vector<std::byte> good() const { return stranger_.encode(write_middle(1, 7, 64), pattern(64, 1)); }

  PortGroup group_{2};
  Stranger stranger_{GetParam(), GetParam(), group_.port};
  Collector collector_;
};

TEST_P(HostilePacket, GoodPacketArrives) {
  stranger_.send(good());
  ASSERT_TRUE(collector_.receive(group_[1], 1));
  EXPECT_EQ(collector_.packets[0].payload, pattern(64, 1));
  EXPECT_EQ(collector_.packets[0].path.source, stranger_.path.source);
  EXPECT_EQ(collector_.packets[0].path.destination, stranger_.path.destination);
  EXPECT_EQ(collector_.packets[0].udp_bytes, good().size());
}

TEST_P(HostilePacket, Truncated) {
  const std::vector<std::byte> packet = good();
  // From 8 bytes on the steering program can select our slot.
  for (const size_t length : {size_t{8}, size_t{11}, size_t{12}, size_t{15}}) {
    expect_drop(ConstBytes(packet).first(length), DropReason::kTruncated);
  }
}

TEST_P(HostilePacket, BadIcrc) {
  std::vector<std::byte> packet = good();
  packet.back() ^= std::byte{1};
  expect_drop(packet, DropReason::kBadIcrc);
  packet = good();
  packet[30] ^= std::byte{0x40};
  expect_drop(packet, DropReason::kBadIcrc);
}

TEST_P(HostilePacket, CutShortBetweenPayloadAndIcrc) {
  const std::vector<std::byte> packet = good();
  expect_drop(ConstBytes(packet).first(packet.size() - 4), DropReason::kBadIcrc);
}

TEST_P(HostilePacket, UnknownOpcode) {
  std::vector<std::byte> packet = good();
  packet[0] = std::byte{0x1f};
  expect_drop(packet, DropReason::kUnknownOpcode);
}

TEST_P(HostilePacket, BadVersion) {
  std::vector<std::byte> packet = good();
  packet[1] |= std::byte{0x0f};
  expect_drop(packet, DropReason::kBadVersion);
}

TEST_P(HostilePacket, PaddingBeyondThePacket) {
  roce::Headers headers = write_middle(1, 0, 0);
  std::vector<std::byte> packet = stranger_.encode(headers, {});
  packet[1] |= std::byte{3 << 4};
  expect_drop(packet, DropReason::kBadPadding);
}

TEST_P(HostilePacket, AcknowledgeWithPayload) {
  expect_drop(stranger_.encode(acknowledge(1, 0), pattern(16, 1)), DropReason::kUnexpectedPayload);
}

TEST_P(HostilePacket, ForAnotherSlotIsDropped) {
  // No process has slot 9: slot 0 gets the packet.
  Collector collector;
  stranger_.send(stranger_.encode(write_middle(9, 0, 16), pattern(16, 1)));
  EXPECT_TRUE(Collector::receive_drops(group_[0], DropReason::kForeignSlot, 1));
}

TEST_P(HostilePacket, EmptyDatagramAtSlotZero) {
  stranger_.send({});
  EXPECT_TRUE(Collector::receive_drops(group_[0], DropReason::kTruncated, 1));
}

TEST_P(HostilePacket, RandomBytesAreCountedAndDropped) {
  const uint64_t seed = 20240229;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> bytes(8 + random.below(1400));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
    bytes[5] = std::byte{0};  // QPN of slot 1
    bytes[6] = std::byte{0x40};
    stranger_.send(bytes);
    ASSERT_TRUE(wait_for(group_[1].receive_fd(), POLLIN));
    ASSERT_GE(group_[1].receive(collector_, 16), 1u);
  }
  const PortCounters& counters = group_[1].counters();
  EXPECT_EQ(counters.received_packets, 2000u);
  EXPECT_EQ(std::accumulate(counters.dropped.begin(), counters.dropped.end(), collector_.packets.size()),
            2000u);
  // Over IPv4 an ICRC is good for any of 65,536 identifications. So one in 65,536 random packets passes, of
  // the one in a hundred that parse.
  EXPECT_LE(collector_.packets.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Loopback, HostilePacket, ::testing::Values("127.0.0.1", "::1"));

}  // namespace
}  // namespace verbena::net::testing
