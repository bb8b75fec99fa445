// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "observe/capture/wire_packets.h"
#include "wire/ethernet/flow_key.h"
#include "wire/roce/ip_header.h"
#include "wire/roce/path.h"

namespace verbena::capture {

using MacAddress = std::array<uint8_t, 6>;

// Frame header fields not derived from the path or packet: MAC addresses and UDP source port.
struct FrameAddresses {
  MacAddress source{};
  MacAddress destination{};
  uint16_t source_port = 0;  // UDP
};

// Builds the Ethernet frame that a packet would have on a wire: IP and UDP with their checksums, RoCEv2 with
// its ICRC. If the packet's payload was truncated, the frame ends with the truncated payload, without an
// ICRC. The UDP checksum is then 0, which means "none" (RFC 768).
class FrameBuilder {
 public:
  struct Frame {
    ConstBytes bytes;         // valid until the next build()
    uint32_t wire_bytes = 0;  // length of the whole frame on the wire, in bytes
  };
  // Builds the frame in the builder's buffer. REQUIRES: both addresses of the path are of one family
  Frame build(const FrameAddresses& addresses, const roce::Path& path, const WirePacket& packet);

 private:
  static constexpr size_t kMaxBytes = ethernet::kHeaderBytes + roce::kIpv6HeaderBytes +
                                      roce::kUdpHeaderBytes + roce::kMaxHeaderBytes + roce::kMaxPathMtu + 4 +
                                      roce::kIcrcBytes;
  std::array<std::byte, kMaxBytes> frame_;
};

}  // namespace verbena::capture
