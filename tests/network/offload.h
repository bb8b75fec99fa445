// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::network {

// What stands before a frame of a device to say what its host left to the device (IFF_VNET_HDR): struct
// virtio_net_hdr of <linux/virtio_net.h>, a header that is not C++.
struct Offload {
  static constexpr uint8_t kChecksumLeft = 1;  // flags

  // segmentation
  static constexpr uint8_t kTcpIpv4 = 1;
  static constexpr uint8_t kTcpIpv6 = 4;
  static constexpr uint8_t kUdp = 5;
  static constexpr uint8_t kEcn = 0x80;  // besides: only the first segment says that the window was reduced

  uint8_t flags = 0;
  uint8_t segmentation = 0;
  uint16_t header_bytes = 0;
  uint16_t segment_bytes = 0;    // of payload
  uint16_t checksum_start = 0;   // what it covers, to the end
  uint16_t checksum_offset = 0;  // of the place for it, from there

  bool leaves_checksum() const { return (flags & kChecksumLeft) != 0; }
  bool is_tcp() const {
    const int kind = segmentation & ~kEcn;
    return kind == kTcpIpv4 || kind == kTcpIpv6;
  }
};
static_assert(sizeof(Offload) == 10);

}  // namespace verbena::network
