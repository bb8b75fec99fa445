// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/roce/icrc.h"
#include "wire/roce/path.h"

namespace verbena::roce {

// What a path comes to in IP and UDP headers: for the ports, whatever they send by, and for the GRH that
// datagram QPs show.

inline constexpr uint32_t kIpv4HeaderBytes = 20;
inline constexpr uint32_t kIpv6HeaderBytes = 40;
inline constexpr uint32_t kUdpHeaderBytes = 8;

// The header of a packet of the path, whose UDP payload (from BTH to ICRC) is so long. IPv4: identification
// 0, "don't fragment", its checksum right. REQUIRES: both addresses of that family, room for the header
void write_ipv4_header(const Path& path, uint32_t udp_payload_bytes, std::byte* header);
void write_ipv6_header(const Path& path, uint32_t udp_payload_bytes, std::byte* header);

// What the ICRC covers of a path's IP and UDP headers.
IcrcFlow icrc_flow(const Path& path, uint16_t source_port, uint16_t destination_port);

}  // namespace verbena::roce
