// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::network {

// The header before each frame of a tap device (IFF_VNET_HDR), which describes the work that the host left to
// the device. It is struct virtio_net_hdr; <linux/virtio_net.h> cannot be compiled as C++.
struct Offload {
  static constexpr uint8_t kChecksumLeft = 1;  // in `flags`

  // in `segmentation`
  static constexpr uint8_t kTcpIpv4 = 1;
  static constexpr uint8_t kTcpIpv6 = 4;
  static constexpr uint8_t kUdp = 5;
  static constexpr uint8_t kEcn = 0x80;  // added to kTcp...: only the first segment carries CWR

  uint8_t flags = 0;
  uint8_t segmentation = 0;
  uint16_t header_bytes = 0;
  uint16_t segment_bytes = 0;    // payload bytes per segment
  uint16_t checksum_start = 0;   // offset from which the checksum covers the frame to its end
  uint16_t checksum_offset = 0;  // offset of the checksum field, from checksum_start

  bool leaves_checksum() const { return (flags & kChecksumLeft) != 0; }
  bool is_tcp() const {
    const int kind = segmentation & ~kEcn;
    return kind == kTcpIpv4 || kind == kTcpIpv6;
  }
};
static_assert(sizeof(Offload) == 10);

}  // namespace verbena::network
