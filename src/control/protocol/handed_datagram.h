// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::protocol {

// A datagram that the agent hands to a process which has no socket of UDP port 4791: one message on a
// SOCK_SEQPACKET socket, this and then the data as it came. Host byte order. The agent vouches for what the
// kernel has said of it, and for nothing that the sender has.
struct HandedDatagram {
  static constexpr uint32_t kMagic = 0x646e6168;  // "hand"
  uint32_t magic;
  uint32_t interface_index;  // it came in by
  uint8_t source[16];        // GIDs: IPv4 addresses are mapped
  uint8_t destination[16];
  uint32_t flow_label;
  uint32_t segment_bytes;  // of the datagrams that were merged, each but the last; 0: it is one
  uint16_t source_port;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint32_t reassembled;  // 1: it came in IP fragments
};
static_assert(sizeof(HandedDatagram) == 56);

// The longest that there is, merged or not.
inline constexpr size_t kMaxHandedBytes = 65536;

}  // namespace verbena::protocol
