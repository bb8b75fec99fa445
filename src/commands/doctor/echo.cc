// SPDX-License-Identifier: Apache-2.0
#include "commands/doctor/echo.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <unistd.h>

#include "base/socket_option.h"

namespace verbena::commands::doctor {
namespace {

constexpr size_t kEchoHeaderBytes = 8;
static_assert(sizeof(icmphdr) == kEchoHeaderBytes);
constexpr size_t kIpv4HeaderBytes = 20;
constexpr size_t kIpv6HeaderBytes = 40;

// The checksum of RFC 1071, for ICMPv4. The kernel computes that of ICMPv6.
uint16_t checksum_of(const std::vector<std::byte>& packet) {
  uint32_t sum = 0;
  for (size_t i = 0; i < packet.size(); ++i) {
    const auto byte = static_cast<uint32_t>(packet[i]);
    sum += i % 2 == 0 ? byte << 8 : byte;
  }
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return htons(static_cast<uint16_t>(~sum));
}

}  // namespace

Echo::Echo(const sockaddr_storage& destination, UniqueFd socket, bool is_raw)
    : destination_(destination),
      socket_(std::move(socket)),
      is_raw_(is_raw),
      id_(static_cast<uint16_t>(::getpid())) {}

// Tries a datagram ICMP socket first, as ping(8): it needs no privilege if a sysctl allows it. A raw socket
// needs CAP_NET_RAW.
Result<Echo> Echo::open(const sockaddr_storage& destination) {
  const bool is_ipv4 = destination.ss_family == AF_INET;
  const int protocol = is_ipv4 ? static_cast<int>(IPPROTO_ICMP) : static_cast<int>(IPPROTO_ICMPV6);
  for (const int type : {SOCK_DGRAM, SOCK_RAW}) {
    UniqueFd socket(::socket(destination.ss_family, type | SOCK_CLOEXEC, protocol));
    if (!socket) continue;
    set_path_mtu_discovery(socket.get(), !is_ipv4, IP_PMTUDISC_PROBE);
    const socklen_t length = is_ipv4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&destination), length) != 0) {
      return fail(errno);
    }
    return Echo(destination, std::move(socket), type == SOCK_RAW);
  }
  return fail(errno);
}

bool Echo::send(size_t packet_bytes) {
  const bool is_ipv4 = destination_.ss_family == AF_INET;
  const size_t ip_bytes = is_ipv4 ? kIpv4HeaderBytes : kIpv6HeaderBytes;
  std::vector<std::byte> packet(std::max(packet_bytes, ip_bytes + kEchoHeaderBytes) - ip_bytes);
  icmphdr header{};
  header.type = is_ipv4 ? uint8_t{ICMP_ECHO} : uint8_t{ICMP6_ECHO_REQUEST};
  header.un.echo.id = htons(id_);
  header.un.echo.sequence = htons(++sequence_);
  std::memcpy(packet.data(), &header, sizeof header);
  if (is_raw_ && is_ipv4) {
    header.checksum = checksum_of(packet);
    std::memcpy(packet.data(), &header, sizeof header);
  }
  return ::send(socket_.get(), packet.data(), packet.size(), 0) == static_cast<ssize_t>(packet.size());
}

// Waits for the reply. A raw socket also receives replies for other programs, and with IPv4 the IP header. On
// a datagram socket the kernel replaces the identifier with its own.
bool Echo::await(Duration patience) {
  const bool is_ipv4 = destination_.ss_family == AF_INET;
  const TimePoint end = MonotonicClock::now() + patience;
  std::array<std::byte, 65'536> packet;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - MonotonicClock::now()).count();
    pollfd entry{socket_.get(), POLLIN, 0};
    if (left <= 0 || ::poll(&entry, 1, static_cast<int>(left)) <= 0) return false;
    const ssize_t count = ::recv(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return false;  // an ICMP error, such as unreachable
    const size_t at = is_raw_ && is_ipv4 && count > 0 ? (static_cast<size_t>(packet[0]) & 15) * 4 : size_t{0};
    if (count < static_cast<ssize_t>(at + sizeof(icmphdr))) continue;
    icmphdr header{};
    std::memcpy(&header, packet.data() + at, sizeof header);
    const bool is_reply = header.type == (is_ipv4 ? uint8_t{ICMP_ECHOREPLY} : uint8_t{ICMP6_ECHO_REPLY});
    const bool is_ours = !is_raw_ || header.un.echo.id == htons(id_);
    if (is_reply && is_ours && header.un.echo.sequence == htons(sequence_)) return true;
  }
}

bool Echo::comes_back(size_t packet_bytes, int tries, Duration patience) {
  for (int i = 0; i < tries; ++i) {
    const bool sent = send(packet_bytes);
    if (!sent && errno == EMSGSIZE) return false;
    if (sent && await(patience)) return true;
  }
  return false;
}

}  // namespace verbena::commands::doctor
