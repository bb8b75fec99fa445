// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "adapter/transport/packet_io.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

namespace verbena::transport {

// Octets of packets as port counters count them: everything between the packet delimiters (IBTA volume 1,
// 16.1.3.5). For RoCEv2, from the IP header to the ICRC, as the kernel's rxe counts its bytes. Messages over
// shared memory count as the packets that they replace.

constexpr uint32_t kIpv4Bytes = 20;
constexpr uint32_t kIpv6Bytes = 40;
constexpr uint32_t kUdpBytes = 8;

// Octets of a packet with a BTH and no payload.
inline uint32_t least_octets(const roce::Path& path) {
  return (path.destination.is_ipv4() ? kIpv4Bytes : kIpv6Bytes) + kUdpBytes + roce::kBthBytes +
         roce::kIcrcBytes;
}

// Bytes of a payload with its padding to a multiple of four.
constexpr uint32_t padded(uint32_t payload_bytes) {
  return (payload_bytes + 3) & ~3u;
}

// Octets of `count` packets of one message; the first one has the extension headers.
inline uint64_t octets_of(const roce::Path& path, uint8_t opcode, uint32_t payload_bytes,
                          uint32_t count = 1) {
  return uint64_t{count} * least_octets(path) + (roce::header_bytes(opcode) - roce::kBthBytes) +
         padded(payload_bytes);
}

// Octets of an acknowledgement that travels in another packet.
inline uint32_t octets_of(const roce::Path& path, const Acknowledgement*) {
  constexpr uint32_t kAethBytes = 4;
  return least_octets(path) + kAethBytes;
}

// Octets of a batch of messages.
inline uint64_t octets_of(const roce::Path& path, uint8_t opcode, std::span<const uint8_t> messages) {
  uint64_t payload = 0;
  for (const uint8_t bytes : messages) payload += padded(bytes);
  return messages.size() * octets_of(path, opcode, 0) + payload;
}

inline uint64_t octets_of(const OutgoingPacket& packet) {
  const uint8_t opcode = packet.headers.opcode;
  const uint64_t octets = packet.messages.empty()
                              ? octets_of(packet.path, opcode, packet.payload_bytes, packet.count)
                              : octets_of(packet.path, opcode, packet.messages);
  return octets + (packet.acknowledgement != nullptr ? octets_of(packet.path, packet.acknowledgement) : 0);
}

inline uint64_t octets_of(const IncomingPacket& incoming) {
  const uint8_t opcode = incoming.packet.headers.opcode;
  const uint64_t octets =
      incoming.messages.empty()
          ? octets_of(incoming.path, opcode, incoming.payload_bytes(), incoming.packet.count)
          : octets_of(incoming.path, opcode, incoming.messages);
  return octets +
         (incoming.acknowledgement != nullptr ? octets_of(incoming.path, incoming.acknowledgement) : 0);
}

inline uint64_t octets_of(const roce::Path& path, const PlainSend& message) {
  const auto bytes = static_cast<uint32_t>(message.payload.size());
  return octets_of(path, PlainSend::kOpcode, bytes, message.count) +
         (message.acknowledgement != nullptr ? octets_of(path, message.acknowledgement) : 0);
}

}  // namespace verbena::transport
