// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/roce/opcode.h"
#include "wire/roce/psn.h"
#include "wire/roce/qpn.h"

namespace verbena::roce {

inline constexpr uint16_t kUdpPort = 4791;
inline constexpr uint16_t kDefaultPkey = 0xffff;
// Returns whether a P_Key is of the default partition, with full or limited membership (the top bit; IBTA
// volume 1, 10.9.1.1).
constexpr bool is_default_pkey(uint16_t pkey) {
  return (pkey & 0x7fff) == (kDefaultPkey & 0x7fff);
}
inline constexpr uint32_t kBthBytes = 12;
inline constexpr uint32_t kRethBytes = 16;
inline constexpr uint32_t kAtomicEthBytes = 28;
inline constexpr uint32_t kAethBytes = 4;
inline constexpr uint32_t kAtomicAckEthBytes = 8;
inline constexpr uint32_t kImmediateBytes = 4;
inline constexpr uint32_t kIethBytes = 4;
inline constexpr uint32_t kDethBytes = 8;
inline constexpr uint32_t kXrcethBytes = 4;
inline constexpr uint32_t kFethBytes = 4;
inline constexpr uint32_t kIcrcBytes = 4;
// Room for the BTH and the longest chain of extension headers: an XRC atomic request, 12 + 4 + 28 bytes.
inline constexpr uint32_t kMaxHeaderBytes = 64;
inline constexpr uint32_t kMaxPathMtu = 4096;

// All header fields of one packet, in host order. The opcode decides which extension fields are used
// (kOpcodes). encode() ignores the unused fields, and they are zero after parse().
struct Headers {
  // BTH (IBTA volume 1, 9.2)
  uint8_t opcode = 0;
  bool solicited = false;
  bool migrated = false;  // MigReq
  uint8_t pad = 0;        // bytes of padding after the payload, 0-3
  uint8_t header_version = 0;
  uint16_t pkey = kDefaultPkey;
  bool fecn = false;
  bool becn = false;
  Qpn destination;
  bool ack_request = false;
  Psn psn;

  uint32_t xrc_srq = 0;  // XRCETH
  // DETH
  uint32_t qkey = 0;
  Qpn source;
  // FETH
  uint8_t flush_type = 0;         // PLT: 4 bits
  uint8_t flush_selectivity = 0;  // SEL: 2 bits
  // RETH; AtomicETH uses address and rkey too
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t dma_length = 0;
  // AtomicETH
  uint64_t swap_add = 0;
  uint64_t compare = 0;
  // AETH
  uint8_t syndrome = 0;
  uint32_t msn = 0;              // 24 bits
  uint64_t atomic_original = 0;  // AtomicAckETH
  uint32_t immediate = 0;        // ImmDt, in host order of the wire's big-endian word
  uint32_t invalidate_rkey = 0;  // IETH

  const OpcodeInfo& info() const { return kOpcodes[opcode]; }
  Service service() const { return service_of(opcode); }
  Operation operation() const { return operation_of(opcode); }
};

// The reason why a UDP payload is no valid packet.
enum class ParseError : uint8_t { kTruncated, kUnknownOpcode, kBadVersion, kBadPadding, kUnexpectedPayload };

// A received packet. `payload` points into the receive buffer and excludes padding and ICRC.
struct Packet {
  Headers headers;
  ConstBytes payload;
  // The number of consecutive packets of one message that this object stands for. It is more than 1 for a
  // super-packet, and always 1 for a packet from the network. The opcode tells whether the first packet
  // begins the message, and whether the last packet ends it. The PSN is that of the first packet.
  uint32_t count = 1;
};

// Parses one RoCEv2 packet, or returns the reason why it is invalid. `udp_payload` goes from the BTH to the
// ICRC's last byte. Does not check the ICRC.
tl::expected<Packet, ParseError> parse(ConstBytes udp_payload);

// parse() parses one packet into `packet`. It is faster than parse(udp_payload), which returns a Packet by
// value. parse_headers() parses only headers, as encode() wrote them. Both return nullopt on success; else
// the output is invalid. REQUIRES: `packet` is newly constructed
std::optional<ParseError> parse(ConstBytes udp_payload, Packet& packet);
std::optional<ParseError> parse_headers(ConstBytes encoded, Headers& headers);

// Returns the length in bytes of an opcode's BTH and extension headers. REQUIRES: kOpcodes[opcode].exists()
inline uint32_t header_bytes(uint8_t opcode) {
  return kHeaderBytes[opcode];
}

// Writes BTH and extension headers, and returns their length in bytes. REQUIRES: the opcode exists. REQUIRES:
// `out` has room for header_bytes(opcode)
uint32_t encode(const Headers& headers, Bytes out);

// The headers of most packets: a BTH in the default partition, without extension headers and congestion
// marks. encode_plain() and parse_plain() take a tenth of the time of encode() and parse_headers().
struct PlainHeaders {
  uint8_t opcode = 0;
  uint8_t pad = 0;
  bool solicited = false;
  bool ack_request = false;
  Qpn destination;
  Psn psn;
};

inline Headers headers_of(const PlainHeaders& plain) {
  Headers headers;
  headers.opcode = plain.opcode;
  headers.pad = plain.pad;
  headers.solicited = plain.solicited;
  headers.ack_request = plain.ack_request;
  headers.destination = plain.destination;
  headers.psn = plain.psn;
  return headers;
}

// The bits of a BTH as two big-endian words: one of its first eight bytes, and one of its last four bytes
// (IBTA volume 1, 9.2).
struct PlainWords {
  static constexpr unsigned kOpcodeShift = 56;
  static constexpr uint64_t kSolicited = uint64_t{0x80} << 48;
  static constexpr unsigned kPadShift = 52;
  static constexpr uint64_t kPartition = uint64_t{kDefaultPkey} << 32;
  // Mask of the bits that are the same in every plain BTH: MigReq, version, partition, congestion marks and
  // the reserved bits beside them.
  static constexpr uint64_t kFixed = uint64_t{0x4f} << 48 | uint64_t{0xffff} << 32 | uint64_t{0xff} << 24;
  static constexpr uint32_t kAckRequest = 0x80000000;
};

// Writes the last four bytes of a BTH (AckReq and PSN) to `to`. Returns these bytes as a word in memory
// order, for crc_update_word().
inline uint32_t encode_psn(Psn psn, bool ack_request, std::byte* to) {
  store_be(to, psn.value() | (ack_request ? PlainWords::kAckRequest : 0));
  uint32_t word;
  std::memcpy(&word, to, sizeof word);
  return word;
}

// Like encode() for plain headers. REQUIRES: the opcode has no extension headers. REQUIRES: `to` has room for
// kBthBytes
inline void encode_plain(const PlainHeaders& plain, std::byte* to) {
  using Words = PlainWords;
  store_be(to, uint64_t{plain.opcode} << Words::kOpcodeShift | (plain.solicited ? Words::kSolicited : 0) |
                   uint64_t{plain.pad} << Words::kPadShift | Words::kPartition | plain.destination.value());
  store_be(to + 8, plain.psn.value() | (plain.ack_request ? Words::kAckRequest : 0));
}

// Parses the kBthBytes at `from`. Returns false if the BTH is not plain: another partition, a congestion
// mark, MigReq, or an unknown version. Does not check the opcode.
inline bool parse_plain(const std::byte* from, PlainHeaders& plain) {
  using Words = PlainWords;
  const auto first = load_be<uint64_t>(from);
  if ((first & Words::kFixed) != Words::kPartition) return false;
  const auto last = load_be<uint32_t>(from + 8);
  plain.opcode = static_cast<uint8_t>(first >> Words::kOpcodeShift);
  plain.pad = static_cast<uint8_t>(first >> Words::kPadShift & 3);
  plain.solicited = (first & Words::kSolicited) != 0;
  plain.ack_request = (last & Words::kAckRequest) != 0;
  plain.destination = Qpn(static_cast<uint32_t>(first) & Qpn::kMask);
  plain.psn = Psn(last);
  return true;
}

// Returns the number of bytes that pad a payload to a multiple of four bytes.
constexpr uint8_t padding_of(uint32_t payload_bytes) {
  return static_cast<uint8_t>(-payload_bytes & 3);
}

}  // namespace verbena::roce
