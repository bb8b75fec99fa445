// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::protocol {

// The header of a datagram that the agent forwards to a process without a socket of UDP port 4791. A message
// on a SOCK_SEQPACKET socket has this header in host byte order, then the datagram as received. The header's
// fields are from the kernel and can be trusted; the datagram is unchecked.
struct ForwardedDatagram {
  static constexpr uint32_t kMagic = 0x646e6168;  // "hand"
  uint32_t magic;
  uint32_t interface_index;  // incoming interface
  uint8_t source[16];        // a GID; IPv4 addresses are mapped
  uint8_t destination[16];
  uint32_t flow_label;
  uint32_t segment_bytes;  // for merged datagrams (GRO), the length of each but the last; 0 for a single one
  uint16_t source_port;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint32_t reassembled;  // 1 if it arrived in IP fragments
};
static_assert(sizeof(ForwardedDatagram) == 56);

// Maximum length in bytes of a forwarded datagram, merged or not, without the header.
inline constexpr size_t kMaxForwardedBytes = 65536;

}  // namespace verbena::protocol
