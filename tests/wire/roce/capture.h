// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "wire/roce/icrc.h"

namespace verbena::roce {

// A RoCEv2 packet of a capture.
struct CapturedPacket {
  std::string where;          // for messages, such as "file.pcap packet 3"
  std::vector<std::byte> ip;  // from the IP header to the end of the ICRC
  size_t ip_header_bytes = 0;
  IcrcFlow flow;
  uint16_t identification = 0;  // IPv4

  ConstBytes udp_payload() const { return ConstBytes(ip).subspan(ip_header_bytes + 8); }
};

// All packets of the files in tests/wire/roce/captures. Throws std::runtime_error for a malformed file, so
// that no packet is skipped silently.
const std::vector<CapturedPacket>& captured_packets();

// Computes the ICRC directly from its definition (IBTA annex A17, 17.3.4), bit by bit over a masked copy of
// the packet. Shares no code with src/.
uint32_t icrc_by_definition(const CapturedPacket& packet);

}  // namespace verbena::roce
