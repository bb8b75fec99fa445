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

// What a frame says beside the packet.
struct FrameAddresses {
  MacAddress source{};
  MacAddress destination{};
  uint16_t source_port = 0;  // of UDP
};

// Makes of a packet the Ethernet frame that it would have been: IP and UDP with their checksums, RoCEv2 with
// its ICRC. Of a payload that is not whole the frame ends where it ends; its UDP checksum is 0, which says
// "none" (RFC 768).
class FrameBuilder {
 public:
  struct Frame {
    ConstBytes bytes;         // in the builder, until the next one is built
    uint32_t wire_bytes = 0;  // what it would have been on the wire
  };
  // REQUIRES: the addresses of the path are of one family
  Frame build(const FrameAddresses& addresses, const roce::Path& path, const WirePacket& packet);

 private:
  static constexpr size_t kMaxBytes = ethernet::kHeaderBytes + roce::kIpv6HeaderBytes +
                                      roce::kUdpHeaderBytes + roce::kMaxHeaderBytes + roce::kMaxPathMtu + 4 +
                                      roce::kIcrcBytes;
  std::array<std::byte, kMaxBytes> frame_;
};

}  // namespace verbena::capture
