// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "observe/capture/ring_reader.h"
#include "wire/ethernet/steering.h"
#include "wire/roce/ip_header.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

namespace verbena::capture {

// Returns whether packets of this opcode can form a super-packet (consecutive packets of one message that are
// recorded as one): SENDs, RDMA WRITEs and READ responses of RC.
bool can_be_joined(uint8_t opcode);

// One packet as it would be on a wire.
struct WirePacket {
  roce::Headers headers;
  ConstBytes payload;          // the recorded part of the payload
  uint32_t payload_bytes = 0;  // length of the whole payload, without padding
};

// Splits the super-packet of a record: returns packet `index`, from 0 to record.count - 1. PSNs are
// consecutive. Only the first packet can begin the message. Only the last packet can end the message, request
// an acknowledgement or solicit an event.
WirePacket packet_at(const Record& record, uint32_t index);

using MacAddress = std::array<uint8_t, 6>;

// Frame header fields not derived from the path or packet: MAC addresses and UDP source port.
struct FrameAddresses {
  MacAddress source{};
  MacAddress destination{};
  uint16_t source_port = 0;  // UDP
};

// Builds the Ethernet frame that a packet would have on a wire: IP and UDP with their checksums, RoCEv2 with
// its ICRC. If only a part of the packet's payload was recorded, the frame ends with this part, without an
// ICRC. The UDP checksum is then 0, which means "none" (RFC 768).
class FrameBuilder {
 public:
  struct Frame {
    ConstBytes bytes;         // valid until the next build()
    uint32_t wire_bytes = 0;  // length of the whole frame on the wire, in bytes
  };
  // Builds the frame in the builder's buffer. REQUIRES: both addresses of the path are IPv4, or both are IPv6
  Frame build(const FrameAddresses& addresses, const roce::Path& path, const WirePacket& packet);

 private:
  static constexpr size_t kMaxBytes = ethernet::kHeaderBytes + roce::kIpv6HeaderBytes +
                                      roce::kUdpHeaderBytes + roce::kMaxHeaderBytes + roce::kMaxPathMtu + 4 +
                                      roce::kIcrcBytes;
  std::array<std::byte, kMaxBytes> frame_;
};

}  // namespace verbena::capture
