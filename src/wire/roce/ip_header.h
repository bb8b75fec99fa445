// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/roce/icrc.h"
#include "wire/roce/path.h"

namespace verbena::roce {

// Builds IP and UDP header fields from a path: for packets sent by any kind of socket, and for the GRH that
// UD receivers get.

inline constexpr uint32_t kIpv4HeaderBytes = 20;
inline constexpr uint32_t kIpv6HeaderBytes = 40;
inline constexpr uint32_t kUdpHeaderBytes = 8;
inline constexpr uint8_t kIpProtocolUdp = 17;
inline constexpr uint16_t kDontFragment = 0x4000;

// These functions write the IP header of a packet on this path. `udp_payload_bytes`: from the BTH to the
// ICRC's end. IPv4: identification 0, "don't fragment", valid checksum. REQUIRES: both addresses of the path
// are of the function's IP version. REQUIRES: `header` has room for 20 (IPv4) or 40 (IPv6) bytes
void write_ipv4_header(const Path& path, uint32_t udp_payload_bytes, std::byte* header);
void write_ipv6_header(const Path& path, uint32_t udp_payload_bytes, std::byte* header);

// Returns the fields of a path's IP and UDP headers that the ICRC covers. Ports in host order.
IcrcFlow icrc_flow(const Path& path, uint16_t source_port, uint16_t destination_port);

}  // namespace verbena::roce
