// SPDX-License-Identifier: Apache-2.0
// The errors that the ICRC finds, and those that it misses when the identification is hidden. Exact tests of
// the promises in wire/roce/icrc.h.
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "wire/roce/capture.h"
#include "wire/roce/crc_kernels.h"
#include "wire/roce/packet.h"

namespace verbena::roce {
namespace {

void flip(std::vector<std::byte>& bytes, size_t bit) {
  bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
}

std::vector<std::byte> payload_of(const CapturedPacket& packet) {
  return {packet.udp_payload().begin(), packet.udp_payload().end()};
}

constexpr size_t kMaskedByte = 4;

// One packet of every shape in the captures: all opcodes, both IP versions, all lengths.
std::vector<const CapturedPacket*> one_of_each_shape() {
  std::map<std::array<size_t, 3>, const CapturedPacket*> shapes;
  for (const CapturedPacket& packet : captured_packets()) {
    shapes.try_emplace({static_cast<size_t>(packet.udp_payload()[0]), packet.ip.size(), packet.flow.ipv6},
                       &packet);
  }
  std::vector<const CapturedPacket*> packets;
  for (const auto& [shape, packet] : shapes) packets.push_back(packet);
  return packets;
}

TEST(IcrcBounds, EverySingleFlippedBitIsRejected) {
  for (const CapturedPacket* packet : one_of_each_shape()) {
    auto bytes = payload_of(*packet);
    const auto hidden = static_cast<uint16_t>(packet->identification + 1);
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      if (bit / 8 == kMaskedByte) continue;
      flip(bytes, bit);
      ASSERT_NE(icrc_check(packet->flow, bytes, packet->identification), IcrcCheck::kExact) << packet->where;
      ASSERT_EQ(icrc_check(packet->flow, bytes, hidden), IcrcCheck::kBad) << packet->where << " bit " << bit;
      ASSERT_EQ(icrc_check(packet->flow, bytes, packet->identification), IcrcCheck::kBad) << packet->where;
      flip(bytes, bit);
    }
  }
}

TEST(IcrcBounds, EverySingleFlippedBitOfTheFlowIsRejected) {
  for (const CapturedPacket* packet : one_of_each_shape()) {
    const auto bytes = payload_of(*packet);
    const auto rejected = [&](const IcrcFlow& flow) {
      return icrc_check(flow, bytes, packet->identification) == IcrcCheck::kBad &&
             icrc_check(flow, bytes, static_cast<uint16_t>(packet->identification ^ 0x8001)) ==
                 IcrcCheck::kBad;
    };
    for (size_t bit = 0; bit < (packet->flow.ipv6 ? 128 : 32); ++bit) {
      IcrcFlow flow = packet->flow;
      flow.source[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      ASSERT_TRUE(rejected(flow)) << packet->where << " source bit " << bit;
      flow = packet->flow;
      flow.destination[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      ASSERT_TRUE(rejected(flow)) << packet->where << " destination bit " << bit;
    }
    for (size_t bit = 0; bit < 16; ++bit) {
      IcrcFlow flow = packet->flow;
      flow.source_port ^= static_cast<uint16_t>(1 << bit);
      ASSERT_TRUE(rejected(flow)) << packet->where << " source port bit " << bit;
      flow = packet->flow;
      flow.destination_port ^= static_cast<uint16_t>(1 << bit);
      ASSERT_TRUE(rejected(flow)) << packet->where << " destination port bit " << bit;
    }
  }
}

TEST(IcrcBounds, CutOrExtendedPacketsAreRejected) {
  for (const CapturedPacket* packet : one_of_each_shape()) {
    auto bytes = payload_of(*packet);
    bytes.resize(bytes.size() - 4);
    EXPECT_EQ(icrc_check(packet->flow, bytes, packet->identification), IcrcCheck::kBad) << packet->where;
    bytes.resize(bytes.size() + 8);
    EXPECT_EQ(icrc_check(packet->flow, bytes, packet->identification), IcrcCheck::kBad) << packet->where;
  }
  for (size_t size = 0; size < kBthBytes + kIcrcBytes; ++size) {
    EXPECT_EQ(icrc_check({}, std::vector<std::byte>(size), 0), IcrcCheck::kBad);
  }
  EXPECT_EQ(icrc_check({}, std::vector<std::byte>(65508), 0), IcrcCheck::kBad) << "longer than UDP can be";
}

TEST(IcrcBounds, MaskedBitsDoNotMatter) {
  for (const CapturedPacket* packet : one_of_each_shape()) {
    auto bytes = payload_of(*packet);
    for (unsigned value = 0; value < 256; ++value) {
      bytes[kMaskedByte] = static_cast<std::byte>(value);
      EXPECT_EQ(icrc_check(packet->flow, bytes, packet->identification), IcrcCheck::kExact) << packet->where;
    }
    // Masked fields of the IP and UDP headers are no part of an IcrcFlow, so change them in the captured
    // packet.
    CapturedPacket changed = *packet;
    std::byte* const udp = changed.ip.data() + changed.ip_header_bytes;
    std::vector<std::byte*> masked{udp + 6, udp + 7, udp + 8 + kMaskedByte};
    const auto offsets =
        packet->flow.ipv6 ? std::vector<size_t>{1, 2, 3, 7} : std::vector<size_t>{1, 8, 10, 11};
    for (const size_t offset : offsets) masked.push_back(changed.ip.data() + offset);
    for (std::byte* byte : masked) *byte ^= std::byte{0xa5};
    EXPECT_EQ(icrc_by_definition(changed), icrc_by_definition(*packet)) << packet->where;
  }
}

// icrc_check() finds a hidden identification with any of the 2^16 values.
TEST(IcrcBounds, EveryIdentificationIsAccepted) {
  const CapturedPacket& sample = captured_packets().front();
  ASSERT_FALSE(sample.flow.ipv6);
  auto bytes = payload_of(sample);
  const ConstBytes covered = ConstBytes(bytes).first(bytes.size() - kIcrcBytes);
  for (uint32_t identification = 0; identification <= 0xffff; ++identification) {
    const uint32_t icrc = icrc_of(sample.flow, static_cast<uint16_t>(identification), covered);
    std::memcpy(bytes.data() + covered.size(), &icrc, sizeof icrc);
    ASSERT_EQ(icrc_check(sample.flow, bytes, 0x1234),
              identification == 0x1234 ? IcrcCheck::kExact : IcrcCheck::kAcceptedForSomeIdentification);
  }
}

// About one in 2^16 random ICRC values passes, each for one identification.
TEST(IcrcBounds, RandomIcrcsPassOnceIn65536) {
  const CapturedPacket& sample = captured_packets().front();
  auto bytes = payload_of(sample);
  Random random(20240501);
  constexpr int kDraws = 1 << 22;
  int passed = 0;
  for (int i = 0; i < kDraws; ++i) {
    const auto icrc = static_cast<uint32_t>(random.next());
    std::memcpy(bytes.data() + bytes.size() - kIcrcBytes, &icrc, sizeof icrc);
    passed += icrc_check(sample.flow, bytes, 0) != IcrcCheck::kBad;
  }
  const double expected = kDraws / 65536.0;  // 64; six standard deviations either side
  EXPECT_NEAR(passed, expected, 6 * std::sqrt(expected));
}

TEST(IcrcBounds, Ipv6AcceptsTheExactIcrcOnly) {
  for (const CapturedPacket* packet : one_of_each_shape()) {
    if (!packet->flow.ipv6) continue;
    auto bytes = payload_of(*packet);
    for (size_t bit = 0; bit < 32; ++bit) {
      flip(bytes, 8 * bytes.size() - 32 + bit);
      EXPECT_EQ(icrc_check(packet->flow, bytes, 0), IcrcCheck::kBad);
      flip(bytes, 8 * bytes.size() - 32 + bit);
    }
  }
}

// The following tests are about the CRC code itself and hold for every packet. An error passes if, moved back
// to the identification, it is a residue that two bytes can make. A bit t places behind the identification's
// first bit is x^(31 - t) there. So the smallest errors that pass can be listed.
constexpr size_t kBthBit = 16 + 8 * 22;  // from the identification's first bit to the BTH's first

std::vector<uint32_t> residues(size_t bits) {
  std::vector<uint32_t> powers(bits);
  uint32_t power = 1;
  for (uint32_t& residue : powers) residue = std::exchange(power, crc::over_x(power));
  return powers;
}

bool passes(uint32_t residue) {
  return residue <= 0xffff;
}

TEST(IcrcBounds, FirstSingleBitThatPassesIsBeyondAnyRocePacket) {
  const auto powers = residues(8 * 65536);
  size_t first = kBthBit;
  while (!passes(powers[first])) ++first;
  EXPECT_EQ((first - kBthBit) / 8, 26744u) << "the byte of the UDP payload";
}

TEST(IcrcBounds, BurstsOfThreeBitsAreRejectedAndTheFirstOfFourIsKnown) {
  const auto powers = residues(kBthBit + 8 * 4200);
  for (size_t t = kBthBit; t + 3 <= powers.size(); ++t) {
    ASSERT_FALSE(passes(powers[t] ^ powers[t + 1]));
    ASSERT_FALSE(passes(powers[t] ^ powers[t + 2]));
    ASSERT_FALSE(passes(powers[t] ^ powers[t + 1] ^ powers[t + 2]));
  }
  size_t first = 0;
  for (size_t t = kBthBit; t + 4 <= powers.size() && first == 0; ++t) {
    for (unsigned inner = 0; inner < 4; ++inner) {
      const uint32_t burst =
          powers[t] ^ powers[t + 3] ^ (inner & 1 ? powers[t + 1] : 0) ^ (inner & 2 ? powers[t + 2] : 0);
      if (passes(burst)) first = t;
    }
  }
  EXPECT_EQ((first - kBthBit) / 8, 93u);
}

// Ties the listing above to our code: the burst that it names passes icrc_check().
TEST(IcrcBounds, TheListedBurstPassesTheRealCheck) {
  const auto powers = residues(kBthBit + 8 * 4200);
  std::vector<std::byte> bytes(256);
  const uint32_t icrc = icrc_of({}, 0, ConstBytes(bytes).first(252));
  std::memcpy(bytes.data() + 252, &icrc, sizeof icrc);
  ASSERT_EQ(icrc_check({}, bytes, 0), IcrcCheck::kExact);
  for (size_t t = kBthBit;; ++t) {
    for (unsigned inner = 0; inner < 4; ++inner) {
      uint32_t burst = powers[t] ^ powers[t + 3];
      if (inner & 1) burst ^= powers[t + 1];
      if (inner & 2) burst ^= powers[t + 2];
      if (!passes(burst)) continue;
      for (const size_t bit : {t, t + 3}) flip(bytes, bit - kBthBit);
      if (inner & 1) flip(bytes, t + 1 - kBthBit);
      if (inner & 2) flip(bytes, t + 2 - kBthBit);
      EXPECT_EQ(icrc_check({}, bytes, 0), IcrcCheck::kAcceptedForSomeIdentification);
      return;
    }
  }
}

// Two flipped bits. The exact form finds every pair; with the identification hidden, about one pair in 2^16
// passes.
TEST(IcrcBounds, PairsOfBits) {
  const size_t bits = 8 * 1044;
  const auto powers = residues(kBthBit + bits);
  uint64_t passed = 0;
  for (size_t a = kBthBit; a < powers.size(); ++a) {
    for (size_t b = a + 1; b < powers.size(); ++b) {
      passed += passes(powers[a] ^ powers[b]);
      ASSERT_NE(powers[a], powers[b]);
    }
  }
  const double pairs = static_cast<double>(bits) * static_cast<double>(bits - 1) / 2;
  EXPECT_NEAR(static_cast<double>(passed), pairs / 65536, pairs / 65536 / 4);
}

}  // namespace
}  // namespace verbena::roce
