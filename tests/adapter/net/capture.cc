// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/capture.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <system_error>

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include "adapter/net/packets.h"

namespace verbena::net::testing {
namespace {

constexpr size_t kIpv4HeaderBytes = 20;
constexpr size_t kIpv6HeaderBytes = 40;
constexpr size_t kUdpHeaderBytes = 8;
constexpr uint8_t kUdp = 17;

// Reads an IP packet as RFC 791, 8200 and 768 define it, without any code of the port under test.
std::optional<Captured> read_udp(std::span<const uint8_t> ip) {
  Captured result;
  std::span<const uint8_t> udp;
  if (ip.size() >= kIpv4HeaderBytes + kUdpHeaderBytes && ip[0] == 0x45 && ip[9] == kUdp) {
    const size_t total = load_be<uint16_t>(&ip[2]);
    if (total > ip.size()) return std::nullopt;
    result.identification = load_be<uint16_t>(&ip[4]);
    result.dont_fragment = (load_be<uint16_t>(&ip[6]) & 0x4000) != 0;
    result.hop_limit = ip[8];
    std::memcpy(result.flow.source.data(), &ip[12], 4);
    std::memcpy(result.flow.destination.data(), &ip[16], 4);
    udp = ip.subspan(kIpv4HeaderBytes, total - kIpv4HeaderBytes);
  } else if (ip.size() >= kIpv6HeaderBytes + kUdpHeaderBytes && ip[0] >> 4 == 6 && ip[6] == kUdp) {
    const size_t length = load_be<uint16_t>(&ip[4]);
    if (kIpv6HeaderBytes + length > ip.size()) return std::nullopt;
    result.flow.ipv6 = true;
    result.hop_limit = ip[7];
    std::memcpy(result.flow.source.data(), &ip[8], 16);
    std::memcpy(result.flow.destination.data(), &ip[24], 16);
    udp = ip.subspan(kIpv6HeaderBytes, length);
  } else {
    return std::nullopt;
  }
  if (load_be<uint16_t>(&udp[4]) != udp.size()) return std::nullopt;
  result.flow.source_port = load_be<uint16_t>(&udp[0]);
  result.flow.destination_port = load_be<uint16_t>(&udp[2]);
  const auto payload = std::as_bytes(udp.subspan(kUdpHeaderBytes));
  result.udp_payload.assign(payload.begin(), payload.end());
  return result;
}

// The fragment fields of a packet, and the offset of its payload.
struct Fragment {
  uint32_t identification;
  bool more;
  size_t header_bytes;
};
std::optional<Fragment> read_fragment(std::span<const uint8_t> ip) {
  constexpr uint8_t kIpv6Fragment = 44;
  if (ip.size() >= kIpv4HeaderBytes && ip[0] == 0x45) {
    const uint16_t field = load_be<uint16_t>(&ip[6]);
    if ((field & 0x3fff) == 0) return std::nullopt;
    return Fragment{load_be<uint16_t>(&ip[4]), (field & 0x2000) != 0, kIpv4HeaderBytes};
  }
  if (ip.size() >= kIpv6HeaderBytes + 8 && ip[0] >> 4 == 6 && ip[6] == kIpv6Fragment) {
    const auto* header = &ip[kIpv6HeaderBytes];
    return Fragment{load_be<uint32_t>(header + 4), (load_be<uint16_t>(header + 2) & 1) != 0,
                    kIpv6HeaderBytes};
  }
  return std::nullopt;
}

}  // namespace

std::pair<std::vector<uint8_t>, uint32_t> Capture::join(std::span<const uint8_t> ip) {
  const auto fragment = read_fragment(ip);
  if (!fragment) return {{ip.begin(), ip.end()}, 1};
  const bool ipv6 = fragment->header_bytes == kIpv6HeaderBytes;
  const size_t payload = fragment->header_bytes + (ipv6 ? 8 : 0);
  Parts& parts = parts_[fragment->identification];
  if (parts.packet.empty()) parts.packet.assign(ip.begin(), ip.begin() + fragment->header_bytes);
  parts.packet.insert(parts.packet.end(), ip.begin() + payload, ip.end());
  ++parts.count;
  if (fragment->more) return {};
  std::pair<std::vector<uint8_t>, uint32_t> whole{std::move(parts.packet), parts.count};
  parts_.erase(fragment->identification);
  std::vector<uint8_t>& packet = whole.first;
  const size_t length = packet.size() - (ipv6 ? kIpv6HeaderBytes : 0);
  packet[ipv6 ? 4 : 2] = static_cast<uint8_t>(length >> 8);
  packet[ipv6 ? 5 : 3] = static_cast<uint8_t>(length);
  if (ipv6) {
    packet[6] = kUdp;
  } else {
    packet[6] = packet[7] = 0;
  }
  return whole;
}

Capture::Capture(const std::string& device)
    : fd_(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL))) {
  sockaddr_ll where{};
  where.sll_family = AF_PACKET;
  where.sll_protocol = htons(ETH_P_ALL);
  where.sll_ifindex = static_cast<int>(if_nametoindex(device.c_str()));
  const int bytes = 16 << 20;
  setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
  if (bind(fd_.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0) {
    throw std::system_error(errno, std::generic_category(), "capture on " + device);
  }
}

std::vector<Captured> Capture::take(uint16_t port, size_t wanted) {
  std::vector<Captured> captured;
  std::vector<uint8_t> buffer(1 << 17);
  for (;;) {
    sockaddr_ll from{};
    socklen_t length = sizeof from;
    const ssize_t bytes =
        recvfrom(fd_.get(), buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
    if (bytes < 0) {
      if (captured.size() >= wanted || !wait_for(fd_.get(), POLLIN)) return captured;
      continue;
    }
    if (from.sll_pkttype == PACKET_OUTGOING) continue;
    const auto [packet, fragments] = join({buffer.data(), static_cast<size_t>(bytes)});
    auto datagram = read_udp(packet);
    if (datagram) datagram->fragments = fragments;
    if (datagram && datagram->flow.destination_port == port) captured.push_back(std::move(*datagram));
  }
}

}  // namespace verbena::net::testing
