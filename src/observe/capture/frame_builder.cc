// SPDX-License-Identifier: Apache-2.0
#include "observe/capture/frame_builder.h"

#include <cstring>

#include "wire/ethernet/checksum.h"
#include "wire/roce/icrc.h"
#include "wire/roce/packet.h"

namespace verbena::capture {
namespace {

// The identification of packets of Verbena's own sockets: unconnected, "don't fragment".
constexpr uint16_t kIdentification = 0;

}  // namespace

FrameBuilder::Frame FrameBuilder::build(const FrameAddresses& addresses, const roce::Path& path,
                                        const WirePacket& packet) {
  const bool ipv4 = path.destination.is_ipv4();
  const uint32_t header_bytes = roce::header_bytes(packet.headers.opcode);
  const uint32_t udp_payload_bytes =
      header_bytes + packet.payload_bytes + packet.headers.pad + roce::kIcrcBytes;

  std::byte* to = frame_.data();
  std::memcpy(to, addresses.destination.data(), addresses.destination.size());
  std::memcpy(to + 6, addresses.source.data(), addresses.source.size());
  store_be<uint16_t>(to + 12, ipv4 ? ethernet::kTypeIpv4 : ethernet::kTypeIpv6);
  to += ethernet::kHeaderBytes;
  if (ipv4) {
    write_ipv4_header(path, udp_payload_bytes, to);
    to += roce::kIpv4HeaderBytes;
  } else {
    write_ipv6_header(path, udp_payload_bytes, to);
    to += roce::kIpv6HeaderBytes;
  }
  store_be<uint16_t>(to, addresses.source_port);
  store_be<uint16_t>(to + 2, roce::kUdpPort);
  store_be<uint16_t>(to + 4, static_cast<uint16_t>(roce::kUdpHeaderBytes + udp_payload_bytes));
  store_be<uint16_t>(to + 6, 0);
  to += roce::kUdpHeaderBytes;

  std::byte* const bth = to;
  std::array<std::byte, roce::kMaxHeaderBytes> headers;
  roce::encode(packet.headers, headers);
  std::memcpy(to, headers.data(), header_bytes);
  to += header_bytes;
  if (!packet.payload.empty()) std::memcpy(to, packet.payload.data(), packet.payload.size());
  to += packet.payload.size();

  Frame frame;
  frame.wire_bytes = static_cast<uint32_t>(bth - frame_.data()) + udp_payload_bytes;
  if (packet.payload.size() == packet.payload_bytes) {
    std::memset(to, 0, packet.headers.pad);
    to += packet.headers.pad;
    const roce::IcrcFlow flow = icrc_flow(path, addresses.source_port, roce::kUdpPort);
    const uint32_t icrc = icrc_of(flow, kIdentification, ConstBytes(bth, static_cast<size_t>(to - bth)));
    std::memcpy(to, &icrc, sizeof icrc);  // least significant byte first
    to += roce::kIcrcBytes;
    const Bytes whole(frame_.data(), static_cast<size_t>(to - frame_.data()));
    if (const auto found = ethernet::parse_headers(whole)) ethernet::fill_checksums(whole, *found);
  }
  frame.bytes = ConstBytes(frame_.data(), static_cast<size_t>(to - frame_.data()));
  return frame;
}

}  // namespace verbena::capture
