// SPDX-License-Identifier: Apache-2.0
// All packets of the kernel's captures: they parse, encode to the same bytes, and carry the ICRC that we
// compute.
#include "wire/roce/capture.h"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "wire/roce/packet.h"

namespace verbena::roce {
namespace {

uint32_t carried_icrc(const CapturedPacket& packet) {
  uint32_t icrc;
  std::memcpy(&icrc, packet.udp_payload().last(kIcrcBytes).data(), sizeof icrc);
  return icrc;
}

ConstBytes without_icrc(const CapturedPacket& packet) {
  return packet.udp_payload().first(packet.udp_payload().size() - kIcrcBytes);
}

TEST(Captures, AreAllThere) {
  EXPECT_EQ(captured_packets().size(), 837u);
  size_t ipv6 = 0;
  std::set<uint8_t> opcodes;
  std::set<uint16_t> identifications;
  for (const CapturedPacket& packet : captured_packets()) {
    ipv6 += packet.flow.ipv6;
    opcodes.insert(static_cast<uint8_t>(packet.udp_payload()[0]));
    identifications.insert(packet.identification);
  }
  EXPECT_GT(ipv6, 50u);
  EXPECT_GT(opcodes.size(), 30u);
  EXPECT_GT(identifications.size(), 100u) << "with identification 0 everywhere this would test nothing";
}

TEST(Captures, ParseAndEncodeToTheSameBytes) {
  for (const CapturedPacket& captured : captured_packets()) {
    SCOPED_TRACE(captured.where);
    const auto packet = parse(captured.udp_payload());
    ASSERT_TRUE(packet.has_value()) << static_cast<int>(packet.error());
    std::vector<std::byte> encoded(kMaxHeaderBytes);
    encoded.resize(encode(packet->headers, encoded));
    EXPECT_EQ(encoded.size(), header_bytes(packet->headers.opcode));
    encoded.insert(encoded.end(), packet->payload.begin(), packet->payload.end());
    encoded.resize(encoded.size() + packet->headers.pad);  // the kernel pads with zeros
    const ConstBytes expected = without_icrc(captured);
    EXPECT_TRUE(std::ranges::equal(encoded, expected));
  }
}

TEST(Captures, IcrcIsReproducedExactly) {
  for (const CapturedPacket& packet : captured_packets()) {
    EXPECT_EQ(icrc_by_definition(packet), carried_icrc(packet)) << packet.where;
    EXPECT_EQ(icrc_of(packet.flow, packet.identification, without_icrc(packet)), carried_icrc(packet))
        << packet.where;
    EXPECT_EQ(icrc_check(packet.flow, packet.udp_payload(), packet.identification), IcrcCheck::kExact)
        << packet.where;
  }
}

TEST(Captures, IcrcIsReproducedPieceByPiece) {
  for (const CapturedPacket& captured : captured_packets()) {
    const ConstBytes covered = without_icrc(captured);
    const size_t headers = header_bytes(static_cast<uint8_t>(covered[0]));
    std::vector<std::byte> out(covered.size() + kIcrcBytes);
    std::memcpy(out.data(), covered.data(), headers);
    uint32_t state = icrc_begin(captured.flow, static_cast<uint32_t>(out.size()), captured.identification);
    state = icrc_headers(state, ConstBytes(out).first(headers));
    state = crc_copy(state, out.data() + headers, covered.subspan(headers));
    icrc_store(state, out.data() + covered.size());
    EXPECT_TRUE(std::ranges::equal(out, captured.udp_payload())) << captured.where;
  }
}

TEST(Captures, IcrcIsAcceptedWithTheIdentificationHidden) {
  for (const CapturedPacket& packet : captured_packets()) {
    const auto guess = static_cast<uint16_t>(packet.identification ^ 0x5aa5);
    EXPECT_EQ(icrc_check(packet.flow, packet.udp_payload(), guess),
              packet.flow.ipv6 ? IcrcCheck::kExact : IcrcCheck::kAcceptedForSomeIdentification)
        << packet.where;
  }
}

}  // namespace
}  // namespace verbena::roce
