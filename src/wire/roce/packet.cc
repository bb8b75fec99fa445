// SPDX-License-Identifier: Apache-2.0
#include "wire/roce/packet.h"

namespace verbena::roce {
namespace {

// Bits of the BTH's second and fifth byte and of the PSN word (IBTA volume 1, 9.2).
constexpr uint8_t kSolicitedBit = 0x80;
constexpr uint8_t kMigratedBit = 0x40;
constexpr unsigned kPadShift = 4;
constexpr uint8_t kPadMask = 3;
constexpr uint8_t kVersionMask = 0x0f;
constexpr uint8_t kFecnBit = 0x80;
constexpr uint8_t kBecnBit = 0x40;
constexpr uint32_t kAckRequestBit = 0x80000000;

// FETH (annex A19): placement type in the low four bits, selectivity in the next two.
constexpr uint32_t kPlacementMask = 0x0f;
constexpr unsigned kSelectivityShift = 4;
constexpr uint32_t kSelectivityMask = 3;

uint8_t byte_at(const std::byte* from, size_t index) {
  return static_cast<uint8_t>(from[index]);
}

void parse_bth(const std::byte* from, Headers& h) {
  h.opcode = byte_at(from, 0);
  const uint8_t flags = byte_at(from, 1);
  h.solicited = (flags & kSolicitedBit) != 0;
  h.migrated = (flags & kMigratedBit) != 0;
  h.pad = flags >> kPadShift & kPadMask;
  h.header_version = flags & kVersionMask;
  h.pkey = load_be<uint16_t>(from + 2);
  const uint8_t congestion = byte_at(from, 4);
  h.fecn = (congestion & kFecnBit) != 0;
  h.becn = (congestion & kBecnBit) != 0;
  h.destination = Qpn(load_be24(from + 5));
  const auto psn = load_be<uint32_t>(from + 8);
  h.ack_request = (psn & kAckRequestBit) != 0;
  h.psn = Psn(psn);
}

void encode_bth(const Headers& h, std::byte* to) {
  to[0] = static_cast<std::byte>(h.opcode);
  to[1] = static_cast<std::byte>((h.solicited ? kSolicitedBit : 0) | (h.migrated ? kMigratedBit : 0) |
                                 (h.pad & kPadMask) << kPadShift | (h.header_version & kVersionMask));
  store_be<uint16_t>(to + 2, h.pkey);
  to[4] = static_cast<std::byte>((h.fecn ? kFecnBit : 0) | (h.becn ? kBecnBit : 0));
  store_be24(to + 5, h.destination.value());
  store_be<uint32_t>(to + 8, h.psn.value() | (h.ack_request ? kAckRequestBit : 0));
}

// Parses the extension headers in `info`, in the order of their bits. Returns their end.
const std::byte* parse_extensions(const OpcodeInfo& info, const std::byte* from, Headers& h) {
  if (info.has(kXrceth)) {
    h.xrc_srq = load_be<uint32_t>(from) & Qpn::kMask;
    from += kXrcethBytes;
  }
  if (info.has(kDeth)) {
    h.qkey = load_be<uint32_t>(from);
    h.source = Qpn(load_be<uint32_t>(from + 4));
    from += kDethBytes;
  }
  if (info.has(kFeth)) {
    const auto feth = load_be<uint32_t>(from);
    h.flush_type = static_cast<uint8_t>(feth & kPlacementMask);
    h.flush_selectivity = static_cast<uint8_t>(feth >> kSelectivityShift & kSelectivityMask);
    from += kFethBytes;
  }
  if (info.has(kReth)) {
    h.address = load_be<uint64_t>(from);
    h.rkey = load_be<uint32_t>(from + 8);
    h.dma_length = load_be<uint32_t>(from + 12);
    from += kRethBytes;
  }
  if (info.has(kAtomicEth)) {
    h.address = load_be<uint64_t>(from);
    h.rkey = load_be<uint32_t>(from + 8);
    h.swap_add = load_be<uint64_t>(from + 12);
    h.compare = load_be<uint64_t>(from + 20);
    from += kAtomicEthBytes;
  }
  if (info.has(kAeth)) {
    h.syndrome = byte_at(from, 0);
    h.msn = load_be24(from + 1);
    from += kAethBytes;
  }
  if (info.has(kAtomicAckEth)) {
    h.atomic_original = load_be<uint64_t>(from);
    from += kAtomicAckEthBytes;
  }
  if (info.has(kImmediate)) {
    h.immediate = load_be<uint32_t>(from);
    from += kImmediateBytes;
  }
  if (info.has(kIeth)) {
    h.invalidate_rkey = load_be<uint32_t>(from);
    from += kIethBytes;
  }
  return from;
}

std::byte* encode_extensions(const OpcodeInfo& info, const Headers& h, std::byte* to) {
  if (info.has(kXrceth)) {
    store_be<uint32_t>(to, h.xrc_srq & Qpn::kMask);
    to += kXrcethBytes;
  }
  if (info.has(kDeth)) {
    store_be<uint32_t>(to, h.qkey);
    store_be<uint32_t>(to + 4, h.source.value());
    to += kDethBytes;
  }
  if (info.has(kFeth)) {
    store_be<uint32_t>(to, (h.flush_type & kPlacementMask) | (h.flush_selectivity & kSelectivityMask)
                                                                 << kSelectivityShift);
    to += kFethBytes;
  }
  if (info.has(kReth)) {
    store_be<uint64_t>(to, h.address);
    store_be<uint32_t>(to + 8, h.rkey);
    store_be<uint32_t>(to + 12, h.dma_length);
    to += kRethBytes;
  }
  if (info.has(kAtomicEth)) {
    store_be<uint64_t>(to, h.address);
    store_be<uint32_t>(to + 8, h.rkey);
    store_be<uint64_t>(to + 12, h.swap_add);
    store_be<uint64_t>(to + 20, h.compare);
    to += kAtomicEthBytes;
  }
  if (info.has(kAeth)) {
    to[0] = static_cast<std::byte>(h.syndrome);
    store_be24(to + 1, h.msn);
    to += kAethBytes;
  }
  if (info.has(kAtomicAckEth)) {
    store_be<uint64_t>(to, h.atomic_original);
    to += kAtomicAckEthBytes;
  }
  if (info.has(kImmediate)) {
    store_be<uint32_t>(to, h.immediate);
    to += kImmediateBytes;
  }
  if (info.has(kIeth)) {
    store_be<uint32_t>(to, h.invalidate_rkey);
    to += kIethBytes;
  }
  return to;
}

}  // namespace

std::optional<ParseError> parse_headers(ConstBytes encoded, Headers& headers) {
  if (encoded.size() < kBthBytes) return ParseError::kTruncated;
  headers = {};
  parse_bth(encoded.data(), headers);
  const OpcodeInfo& info = headers.info();
  if (!info.exists()) return ParseError::kUnknownOpcode;
  if (headers.header_version != 0) return ParseError::kBadVersion;
  if (encoded.size() != header_bytes(headers.opcode)) return ParseError::kTruncated;
  if (info.extensions != kNoExtension) parse_extensions(info, encoded.data() + kBthBytes, headers);
  return std::nullopt;
}

std::optional<ParseError> parse(ConstBytes udp_payload, Packet& packet) {
  if (udp_payload.size() < kBthBytes + kIcrcBytes) return ParseError::kTruncated;
  Headers& h = packet.headers;
  parse_bth(udp_payload.data(), h);
  const OpcodeInfo& info = h.info();
  if (!info.exists()) return ParseError::kUnknownOpcode;
  if (h.header_version != 0) return ParseError::kBadVersion;
  if (udp_payload.size() < header_bytes(h.opcode) + kIcrcBytes) return ParseError::kTruncated;

  const std::byte* body = udp_payload.data() + kBthBytes;
  if (info.extensions != kNoExtension) body = parse_extensions(info, body, h);
  const auto body_bytes = static_cast<size_t>(udp_payload.data() + udp_payload.size() - kIcrcBytes - body);
  if (!info.carries_payload && body_bytes != 0) return ParseError::kUnexpectedPayload;
  // Payload and padding together are whole words (IBTA volume 1, 9.2: PadCnt).
  if (body_bytes % 4 != 0 || h.pad > body_bytes) return ParseError::kBadPadding;
  packet.payload = ConstBytes(body, body_bytes - h.pad);
  return std::nullopt;
}

tl::expected<Packet, ParseError> parse(ConstBytes udp_payload) {
  Packet packet;
  if (const auto error = parse(udp_payload, packet)) return tl::unexpected(*error);
  return packet;
}

uint32_t encode(const Headers& headers, Bytes out) {
  encode_bth(headers, out.data());
  const OpcodeInfo& info = headers.info();
  if (info.extensions == kNoExtension) return kBthBytes;
  const std::byte* const end = encode_extensions(info, headers, out.data() + kBthBytes);
  return static_cast<uint32_t>(end - out.data());
}

}  // namespace verbena::roce
