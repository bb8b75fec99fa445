// SPDX-License-Identifier: Apache-2.0
#include "wire/roce/icrc.h"

#include "wire/roce/crc_kernels.h"
#include "wire/roce/ip_header.h"
#include "wire/roce/packet.h"

namespace verbena::roce {
namespace {

using crc::kTables;
using crc::multiply;
using crc::x_to;

constexpr uint16_t kMasked = 0xffff;

template <size_t kSize>
constexpr uint32_t state_after(const uint8_t (&bytes)[kSize]) {
  uint32_t state = crc_init();
  for (const uint8_t byte : bytes) {
    state ^= byte;
    for (int bit = 0; bit < 8; ++bit) state = crc::times_x(state);
  }
  return state;
}

// The constant start of the covered bytes, precomputed: eight bytes of ones for the local route header that
// RoCEv2 lacks, then version, header length and masked traffic class, and for IPv6 the masked flow label.
constexpr uint8_t kIpv4Start[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x45, 0xff};
constexpr uint8_t kIpv6Start[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x6f, 0xff, 0xff, 0xff};
constexpr uint32_t kAfterIpv4Start = state_after(kIpv4Start);
constexpr uint32_t kAfterIpv6Start = state_after(kIpv6Start);

// Bytes from the identification's first byte to the BTH.
constexpr size_t kIdentificationToBth = 16 + kUdpHeaderBytes;

// The BTH's fifth byte (FECN, BECN, reserved) counts as ones. Instead of a copy of the header with that byte
// changed, the state before the BTH is corrected: the difference, taken back over the four bytes in between.
constexpr size_t kMaskedBthByte = 4;
constexpr std::array<uint32_t, 256> kMaskCorrection = [] {
  std::array<uint32_t, 256> corrections{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    corrections[byte] = multiply(byte ^ 0xff, x_to(-8 * static_cast<int64_t>(kMaskedBthByte)));
  }
  return corrections;
}();

uint32_t mask_correction(ConstBytes bth) {
  return kMaskCorrection[static_cast<uint8_t>(bth[kMaskedBthByte])];
}

// x^(-8n) for n below 2^16, as the product of two table entries.
constexpr size_t kPowers = 256;
struct InversePowers {
  std::array<uint32_t, kPowers> ones{};      // x^(-8 i)
  std::array<uint32_t, kPowers> hundreds{};  // x^(-8 * 256 i)
};
constexpr InversePowers kInversePowers = [] {
  InversePowers powers;
  powers.ones[0] = powers.hundreds[0] = crc::kOne;
  for (size_t i = 1; i < kPowers; ++i) {
    powers.ones[i] = multiply(powers.ones[i - 1], x_to(-8));
    powers.hundreds[i] = multiply(powers.hundreds[i - 1], x_to(-8 * int64_t{kPowers}));
  }
  return powers;
}();

// The contribution of an identification to the CRC state before the BTH.
constexpr uint32_t image_of(uint16_t identification) {
  return multiply(byteswap(identification), x_to(8 * int64_t{kIdentificationToBth}));
}
// The maximum number of segments in a super-packet that we send.
constexpr size_t kCommonIdentifications = 64;
constexpr std::array<uint32_t, kCommonIdentifications> kImages = [] {
  std::array<uint32_t, kCommonIdentifications> images{};
  for (uint32_t i = 0; i < images.size(); ++i) images[i] = image_of(static_cast<uint16_t>(i));
  return images;
}();

uint32_t inverse_power(size_t bytes) {
  return crc::fast_multiply(kInversePowers.ones[bytes % kPowers], kInversePowers.hundreds[bytes / kPowers]);
}

}  // namespace

uint32_t icrc_begin(const IcrcFlow& flow, uint32_t udp_payload_bytes, uint16_t identification) {
  const auto udp_length = static_cast<uint16_t>(udp_payload_bytes + kUdpHeaderBytes);
  std::byte header[kUdpHeaderBytes + 36];
  std::byte* to = header;
  if (flow.ipv6) {
    store_be<uint16_t>(to, udp_length);
    store_be<uint16_t>(to + 2, kIpProtocolUdp << 8 | 0xff);  // next header, hop limit (masked)
    std::memcpy(to + 4, flow.source.data(), 16);
    std::memcpy(to + 20, flow.destination.data(), 16);
    to += 36;
  } else {
    store_be<uint16_t>(to, static_cast<uint16_t>(udp_length + kIpv4HeaderBytes));
    store_be<uint16_t>(to + 2, identification);
    store_be<uint16_t>(to + 4, flow.may_fragment ? uint16_t{0} : kDontFragment);
    store_be<uint16_t>(to + 6, 0xff << 8 | kIpProtocolUdp);  // time to live (masked), protocol
    store_be<uint16_t>(to + 8, kMasked);                     // header checksum
    std::memcpy(to + 10, flow.source.data(), 4);
    std::memcpy(to + 14, flow.destination.data(), 4);
    to += 18;
  }
  store_be<uint16_t>(to, flow.source_port);
  store_be<uint16_t>(to + 2, flow.destination_port);
  store_be<uint16_t>(to + 4, udp_length);
  store_be<uint16_t>(to + 6, kMasked);  // checksum
  to += kUdpHeaderBytes;
  return crc_update(flow.ipv6 ? kAfterIpv6Start : kAfterIpv4Start,
                    ConstBytes(header, static_cast<size_t>(to - header)));
}

uint32_t icrc_identification(uint16_t identification) {
  return identification < kImages.size() ? kImages[identification] : image_of(identification);
}

uint32_t icrc_headers(uint32_t state, ConstBytes headers) {
  return crc_update(state ^ mask_correction(headers), headers);
}

void icrc_store(uint32_t state, std::byte* to) {
  const uint32_t icrc = crc_final(state);
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(to, &icrc, sizeof icrc);
}

uint32_t icrc_of(const IcrcFlow& flow, uint16_t identification, ConstBytes udp_payload_without_icrc) {
  const auto bytes = static_cast<uint32_t>(udp_payload_without_icrc.size() + kIcrcBytes);
  return crc_final(icrc_headers(icrc_begin(flow, bytes, identification), udp_payload_without_icrc));
}

IcrcCheck icrc_check(const IcrcFlow& flow, ConstBytes udp_payload, uint16_t likely_identification) {
  return IcrcChecker(flow).check(udp_payload, likely_identification);
}

IcrcCheck IcrcChecker::check(ConstBytes udp_payload, uint16_t likely_identification) {
  constexpr size_t kMaxUdpPayload = 65507;
  if (udp_payload.size() < kBthBytes + kIcrcBytes || udp_payload.size() > kMaxUdpPayload) {
    return IcrcCheck::kBad;
  }
  if (udp_payload.size() != bytes_) {
    bytes_ = udp_payload.size();
    state_ = icrc_begin(flow_, static_cast<uint32_t>(bytes_), 0);
  }
  const uint32_t begin = flow_.ipv6 ? state_ : state_ ^ icrc_identification(likely_identification);
  const ConstBytes covered = udp_payload.first(udp_payload.size() - kIcrcBytes);
  uint32_t received;
  std::memcpy(&received, covered.data() + covered.size(), sizeof received);
  const uint32_t difference = crc_final(icrc_headers(begin, covered)) ^ received;
  if (difference == 0) return IcrcCheck::kExact;
  if (flow_.ipv6) return IcrcCheck::kBad;
  // Taken back over all bytes from the identification on, the difference is what must be added to the state
  // there. Two bytes of message affect its low half only.
  const uint32_t needed =
      crc::fast_multiply(difference, inverse_power(covered.size() + kIdentificationToBth));
  return needed <= 0xffff ? IcrcCheck::kAcceptedForSomeIdentification : IcrcCheck::kBad;
}

}  // namespace verbena::roce
