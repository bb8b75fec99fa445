// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "wire/roce/icrc.h"

namespace verbena::roce {

// One RoCEv2 packet of a capture.
struct CapturedPacket {
  std::string where;          // "file.pcap packet 3", for messages
  std::vector<std::byte> ip;  // from the IP header to the ICRC's last byte
  size_t ip_header_bytes = 0;
  IcrcFlow flow;
  uint16_t identification = 0;  // IPv4

  ConstBytes udp_payload() const { return ConstBytes(ip).subspan(ip_header_bytes + 8); }
};

// Every packet of every file in tests/wire/roce/captures. Throws std::runtime_error where a file is not as it
// should be, so that no packet is left out silently.
const std::vector<CapturedPacket>& captured_packets();

// The ICRC straight from its definition (IBTA annex A17, 17.3.4), bit by bit over a masked copy of the whole
// packet: shares nothing with src/.
uint32_t icrc_by_definition(const CapturedPacket& packet);

}  // namespace verbena::roce
