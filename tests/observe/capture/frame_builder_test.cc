// SPDX-License-Identifier: Apache-2.0
// Frames as they would have been on a wire: lengths, checksums, ICRC.
#include "observe/capture/frame_builder.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "wire/ethernet/offloads.h"
#include "wire/roce/icrc.h"
#include "wire/roce/packet.h"

namespace verbena::capture {
namespace {

using testing::Each;

class Frames : public testing::TestWithParam<bool> {
 protected:
  Frames() {
    constexpr uint8_t kFrom[] = {192, 0, 2, 1};
    constexpr uint8_t kTo[] = {192, 0, 2, 2};
    if (is_ipv4()) {
      path.source = roce::Address::from_ipv4(kFrom);
      path.destination = roce::Address::from_ipv4(kTo);
    } else {
      path.source.bytes = {0xfd, 1};
      path.destination.bytes = {0xfd, 2};
    }
    packet.headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kWriteOnly);
    packet.headers.destination = roce::Qpn(0x123456);
    packet.headers.psn = roce::Psn(99);
  }
  static bool is_ipv4() { return GetParam(); }
  uint32_t headers_before_bth() const { return 14u + (is_ipv4() ? 20u : 40u) + 8u; }

  FrameBuilder::Frame build(uint32_t bytes, uint32_t kept) {
    payload.assign(kept, std::byte{0xa5});
    packet.payload = payload;
    packet.payload_bytes = bytes;
    packet.headers.pad = roce::padding_of(bytes);
    return builder.build(addresses, path, packet);
  }

  const FrameAddresses addresses{{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}, 0xc123};
  roce::Path path;
  WirePacket packet;
  std::vector<std::byte> payload;
  FrameBuilder builder;
};
INSTANTIATE_TEST_SUITE_P(Families, Frames, testing::Bool(),
                         [](const auto& family) { return family.param ? "Ipv4" : "Ipv6"; });

TEST_P(Frames, AWholeOneHasAllChecksumsAndItsIcrcRight) {
  for (const uint32_t bytes : {0u, 1u, 3u, 4u, 1000u, 4095u, 4096u}) {
    const auto frame = build(bytes, bytes);
    EXPECT_EQ(frame.bytes.size(), frame.wire_bytes);
    EXPECT_EQ(frame.wire_bytes, headers_before_bth() + 12 + 16 + bytes + packet.headers.pad + 4);
    const auto found = ethernet::parse_headers(frame.bytes);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->key.has(ethernet::kUdp));
    EXPECT_EQ(found->key.destination_port, byteswap(uint16_t{4791}));
    EXPECT_EQ(found->key.source_port, byteswap(uint16_t{0xc123}));
    EXPECT_EQ(found->key.source, addresses.source);
    EXPECT_EQ(found->key.destination, addresses.destination);
    EXPECT_TRUE(ethernet::checksums_good(frame.bytes, *found));
    const ConstBytes udp_payload = frame.bytes.subspan(headers_before_bth());
    EXPECT_EQ(icrc_check(icrc_flow(path, 0xc123, roce::kUdpPort), udp_payload, 0), roce::IcrcCheck::kExact);
    const auto parsed = roce::parse(udp_payload);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->headers.psn, packet.headers.psn);
    EXPECT_EQ(parsed->payload.size(), bytes);
    EXPECT_THAT(parsed->payload, Each(std::byte{0xa5}));
  }
}

TEST_P(Frames, OneWithoutAllItsPayloadEndsThereAndSaysHowLongItWas) {
  const auto frame = build(1000, 30);
  EXPECT_EQ(frame.bytes.size(), headers_before_bth() + 12 + 16 + 30);
  EXPECT_EQ(frame.wire_bytes, headers_before_bth() + 12 + 16 + 1000 + 4);
  EXPECT_EQ(load_be<uint16_t>(frame.bytes.data() + headers_before_bth() - 4), 8 + 12 + 16 + 1000 + 4);
  EXPECT_EQ(load_be<uint16_t>(frame.bytes.data() + headers_before_bth() - 2), 0);
}

}  // namespace
}  // namespace verbena::capture
