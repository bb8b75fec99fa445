// SPDX-License-Identifier: Apache-2.0
#include "wire/roce/ip_header.h"

#include <cstring>

namespace verbena::roce {
namespace {

uint16_t ipv4_checksum(const std::byte* header) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < kIpv4HeaderBytes; i += 2) sum += load_be<uint16_t>(header + i);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

}  // namespace

void write_ipv4_header(const Path& path, uint32_t udp_payload_bytes, std::byte* header) {
  std::memset(header, 0, kIpv4HeaderBytes);
  header[0] = std::byte{0x45};
  header[1] = std::byte{path.traffic_class};
  store_be<uint16_t>(header + 2,
                     static_cast<uint16_t>(kIpv4HeaderBytes + kUdpHeaderBytes + udp_payload_bytes));
  store_be<uint16_t>(header + 6, kDontFragment);
  header[8] = std::byte{path.hop_limit};
  header[9] = std::byte{kIpProtocolUdp};
  std::memcpy(header + 12, path.source.ipv4(), 4);
  std::memcpy(header + 16, path.destination.ipv4(), 4);
  store_be<uint16_t>(header + 10, ipv4_checksum(header));
}

void write_ipv6_header(const Path& path, uint32_t udp_payload_bytes, std::byte* header) {
  store_be<uint32_t>(header, 6u << 28 | uint32_t{path.traffic_class} << 20 | (path.flow_label & 0xfffff));
  store_be<uint16_t>(header + 4, static_cast<uint16_t>(kUdpHeaderBytes + udp_payload_bytes));
  header[6] = std::byte{kIpProtocolUdp};
  header[7] = std::byte{path.hop_limit};
  std::memcpy(header + 8, path.source.bytes.data(), 16);
  std::memcpy(header + 24, path.destination.bytes.data(), 16);
}

IcrcFlow icrc_flow(const Path& path, uint16_t source_port, uint16_t destination_port) {
  IcrcFlow flow;
  flow.ipv6 = !path.destination.is_ipv4();
  flow.source_port = source_port;
  flow.destination_port = destination_port;
  if (flow.ipv6) {
    flow.source = path.source.bytes;
    flow.destination = path.destination.bytes;
  } else {
    std::memcpy(flow.source.data(), path.source.ipv4(), 4);
    std::memcpy(flow.destination.data(), path.destination.ipv4(), 4);
  }
  return flow;
}

}  // namespace verbena::roce
