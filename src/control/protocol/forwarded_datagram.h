// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::protocol {

// The header of a datagram that the agent forwards to a process without a socket of UDP port 4791. One
// message on a SOCK_SEQPACKET socket has this header and then the data as received. Host byte order. The
// agent guarantees the fields that the kernel reported, and none of the sender's data.
struct ForwardedDatagram {
  static constexpr uint32_t kMagic = 0x646e6168;  // "hand"
  uint32_t magic;
  uint32_t interface_index;  // incoming interface
  uint8_t source[16];        // GIDs: IPv4 addresses are mapped
  uint8_t destination[16];
  uint32_t flow_label;
  uint32_t segment_bytes;  // of merged datagrams (GRO): length of each but the last; 0: a single one
  uint16_t source_port;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint32_t reassembled;  // 1: arrived in IP fragments
};
static_assert(sizeof(ForwardedDatagram) == 56);

// Maximum length of a forwarded datagram, merged or not.
inline constexpr size_t kMaxForwardedBytes = 65536;

}  // namespace verbena::protocol
