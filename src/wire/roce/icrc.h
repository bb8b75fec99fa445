// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace verbena::roce {

// The fields of the IP and UDP headers that an ICRC covers and that are the same for all packets of a flow.
// The other fields are lengths, the IPv4 identification, fixed values, or masked to ones (IBTA annex A17,
// 17.3.4: TTL / hop limit, traffic class, flow label, IPv4 checksum, UDP checksum, BTH byte 4). Assumes an
// IPv4 header of 20 bytes and, by default, "don't fragment", as Linux and hardware send RoCEv2.
struct IcrcFlow {
  bool ipv6 = false;
  bool may_fragment = false;              // IPv4: "don't fragment" is clear
  std::array<uint8_t, 16> source{};       // IPv4: the first four bytes
  std::array<uint8_t, 16> destination{};  // IPv4: the first four bytes
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
};

// These functions compute the CRC-32 with the Ethernet polynomial, reflected, step by step. Start with the
// state crc_init(), feed bytes by crc_update(), finish with crc_final(). crc_update() uses carry-less
// multiplication if the processor has it (chosen at the first call), else tables.
constexpr uint32_t crc_init() {
  return 0xffffffffu;
}
uint32_t crc_update(uint32_t state, ConstBytes data);
constexpr uint32_t crc_final(uint32_t state) {
  return ~state;
}

// Advance a CRC state like crc_update(): crc_update_word() over the four bytes of `word` as they lie in
// memory, crc_of_zeros() over `bytes` zero bytes.
uint32_t crc_update_word(uint32_t state, uint32_t word);
uint32_t crc_of_zeros(uint32_t state, uint32_t bytes);

// Copies `from` to `to` and returns the CRC state after these bytes, in one pass over the data. The caller
// handles faults in either buffer (adapter/memory/guarded.h). REQUIRES: `to` has room for from.size() bytes.
// REQUIRES: `to` and `from` do not overlap
uint32_t crc_copy(uint32_t state, std::byte* to, ConstBytes from);

// Returns the CRC state before the BTH: after the eight bytes of ones, the IP header and the UDP header.
// `udp_payload_bytes`: the length from the BTH to the ICRC's end. `identification`: the field of the IPv4
// header, ignored for IPv6.
uint32_t icrc_begin(const IcrcFlow& flow, uint32_t udp_payload_bytes, uint16_t identification);

// Returns the value to XOR into icrc_begin(..., 0) for another IPv4 identification. The CRC is linear, so the
// value is the same for all flows and lengths.
uint32_t icrc_identification(uint16_t identification);

// Continues the CRC over the headers, with BTH byte 4 masked to ones. REQUIRES: `headers` begins with at
// least the first five bytes of the BTH
uint32_t icrc_headers(uint32_t state, ConstBytes headers);

// Finishes the CRC and stores the ICRC's four bytes, least significant byte first.
void icrc_store(uint32_t state, std::byte* to);

// Returns the ICRC of a whole packet, given from the BTH to the last byte before the ICRC.
uint32_t icrc_of(const IcrcFlow& flow, uint16_t identification, ConstBytes udp_payload_without_icrc);

// The result of icrc_check(). kExact: the ICRC is right for the likely IPv4 identification.
// kAcceptedForSomeIdentification: it is right for another identification. kBad: it is right for none.
enum class IcrcCheck : uint8_t { kExact, kAcceptedForSomeIdentification, kBad };

// Checks a received packet whose IPv4 identification is unknown, since a UDP socket does not report it. If
// the ICRC is not that for `likely_identification`, checks whether another identification explains the
// difference. The CRC is linear, so the difference depends only on the 16 bits that differ. One
// multiplication by the inverse of a power of x finds these bits or shows that there are none. The packet's
// bytes are read only once in all cases. IPv6 has no identification: only the exact ICRC passes.
//
// Error detection with an unknown identification, from the BTH to the ICRC's last byte (verified by
// tests/wire/roce/icrc_bounds_test.cc):
// - Any single flipped bit is rejected, up to a UDP payload of 26744 bytes. (RoCEv2 has at most some 4200;
//   the first bit that escapes is in the 26745th byte.)
// - Any burst of up to three bits is rejected in a UDP payload of 4200 bytes; the first burst of four that
//   passes is in byte 93.
// - All other errors pass with probability 2^-16, instead of 2^-32 with the exact ICRC: 2^16 of the 2^32
//   possible ICRC values are accepted for each packet. Two flipped bits far apart are such an error; the
//   exact ICRC always finds them.
IcrcCheck icrc_check(const IcrcFlow& flow, ConstBytes udp_payload, uint16_t likely_identification);

// Checks the ICRCs of packets of one flow, like icrc_check() but faster. Caches the CRC state in front of the
// BTH, which is the same for all packets of one length. One thread at a time. REQUIRES: the flow outlives the
// checker
class IcrcChecker {
 public:
  explicit IcrcChecker(const IcrcFlow& flow) : flow_(flow) {}
  // Like icrc_check(), for the checker's flow.
  IcrcCheck check(ConstBytes udp_payload, uint16_t likely_identification);

 private:
  const IcrcFlow& flow_;
  size_t bytes_ = 0;    // length of the latest packet
  uint32_t state_ = 0;  // icrc_begin() for that length, with identification 0
};

}  // namespace verbena::roce
