// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace verbena::roce {

// The parts of the IP and UDP headers that an ICRC covers and that vary; all else is fixed or masked to ones
// (IBTA annex A17, 17.3.4: TTL / hop limit, traffic class, flow label, IPv4 checksum, UDP checksum, BTH byte
// 4). IPv4 is taken with a header of 20 bytes and, unless said otherwise, "don't fragment" set, as Linux and
// hardware send RoCEv2.
struct IcrcFlow {
  bool ipv6 = false;
  bool may_fragment = false;              // IPv4: "don't fragment" is clear
  std::array<uint8_t, 16> source{};       // IPv4: the first four bytes
  std::array<uint8_t, 16> destination{};  // likewise
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
};

// CRC-32 with the Ethernet polynomial, reflected, as an updatable raw state: start from crc_init(), feed
// bytes, finish with crc_final(). Runs on carry-less multiplication where the processor has it (chosen once
// at load), else on tables.
constexpr uint32_t crc_init() {
  return 0xffffffffu;
}
uint32_t crc_update(uint32_t state, ConstBytes data);
constexpr uint32_t crc_final(uint32_t state) {
  return ~state;
}

// The same of the four bytes of a word, as they lie in memory, and of so many bytes of zero.
uint32_t crc_update_word(uint32_t state, uint32_t word);
uint32_t crc_of_zeros(uint32_t state, uint32_t bytes);

// Copies `from` to `to` and returns the updated state, in one pass over the data. REQUIRES: to holds
// from.size() bytes, no overlap. A fault in either buffer is the caller's to guard against
// (adapter/memory/guarded.h).
uint32_t crc_copy(uint32_t state, std::byte* to, ConstBytes from);

// The CRC state after everything in front of the BTH: the eight bytes of ones, the IP header, the UDP header.
// `udp_payload_bytes` is from the BTH to the ICRC's end. `identification` is ignored for IPv6.
uint32_t icrc_begin(const IcrcFlow& flow, uint32_t udp_payload_bytes, uint16_t identification);

// What an identification adds to what icrc_begin() answers for 0. The CRC is linear: it is the same for every
// flow of IPv4 and every length.
uint32_t icrc_identification(uint16_t identification);

// Continues over the headers (BTH first), masking BTH byte 4. REQUIRES: that is among them
uint32_t icrc_headers(uint32_t state, ConstBytes headers);

// Stores the finished ICRC in its place: least significant byte first.
void icrc_store(uint32_t state, std::byte* to);

// The ICRC of a whole packet: `udp_payload` from BTH to the last byte before the ICRC.
uint32_t icrc_of(const IcrcFlow& flow, uint16_t identification, ConstBytes udp_payload_without_icrc);

enum class IcrcCheck : uint8_t { kExact, kAcceptedForSomeIdentification, kBad };

// Checks a received packet whose IPv4 identification is unknown (a UDP socket does not tell it). The CRC is
// linear, so the difference to the ICRC computed for `likely_identification` must be the image of a 16-bit
// value; one multiplication by the inverse of a power of x finds that value or shows that there is none. The
// data is read once either way. IPv6 has no such field: only the exact ICRC passes.
//
// What the form with the identification hidden still promises, for everything from the BTH to the ICRC's last
// byte, and what it does not (tests/wire/roce/icrc_bounds_test.cc holds it to this):
//   - any single flipped bit is rejected, up to a UDP payload of 26744 bytes (RoCEv2 has at most some 4200;
//     the first bit that escapes is in the 26745th byte);
//   - so is any burst of up to three bits in a UDP payload of 4200 bytes; the first burst of four that passes
//     is in byte 93;
//   - of all other errors one in 2^16 passes, where the exact form lets one in 2^32 pass: to each packet 2^16
//     of the 2^32 possible ICRC values are right. Two flipped bits far apart are among them; the exact form
//     always finds them.
IcrcCheck icrc_check(const IcrcFlow& flow, ConstBytes udp_payload, uint16_t likely_identification);

// Checks packets of one flow, mostly of one length: what lies in front of the BTH is computed once for all
// of them. The flow outlives it. One thread at a time.
class IcrcChecker {
 public:
  explicit IcrcChecker(const IcrcFlow& flow) : flow_(flow) {}
  // As icrc_check().
  IcrcCheck check(ConstBytes udp_payload, uint16_t likely_identification);

 private:
  const IcrcFlow& flow_;
  size_t bytes_ = 0;    // of the latest packet
  uint32_t state_ = 0;  // icrc_begin() of those, with identification 0
};

}  // namespace verbena::roce
