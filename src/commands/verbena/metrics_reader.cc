// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/metrics_reader.h"

#include <cstring>

#include <netinet/in.h>

#include "agent/sessions/visible_processes.h"
#include "base/format.h"
#include "base/paths/users.h"

namespace verbena::commands {
namespace {

constexpr size_t kNetworkBytes = 8;  // of an IPv6 address: the part that one host may own
constexpr unsigned kLoopback = 127;

std::string source_of_ipv4(uint32_t address) {
  return address >> 24 == kLoopback ? "loopback" : verbena::format("{:08x}", address);
}

}  // namespace

std::string source_of(const ucred& peer) {
  return verbena::format("user {}", peer.uid);
}

std::string source_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return source_of_ipv4(ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr));
  }
  const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&ipv6)) {
    uint32_t ipv4;
    std::memcpy(&ipv4, &ipv6.s6_addr[12], sizeof ipv4);
    return source_of_ipv4(ntohl(ipv4));
  }
  if (IN6_IS_ADDR_LOOPBACK(&ipv6)) return "loopback";
  std::string network = "network ";
  return network.append(reinterpret_cast<const char*>(ipv6.s6_addr), kNetworkBytes);
}

std::optional<MetricsReader> reader_at(int connected_socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getpeername(connected_socket, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return std::nullopt;
  if (address.ss_family != AF_UNIX) return MetricsReader{source_of(address), false};
  ucred peer{};
  length = sizeof peer;
  if (::getsockopt(connected_socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  const paths::PeerProcess reader{.pid = peer.pid, .shown = peer.uid, .socket = connected_socket};
  return MetricsReader{source_of(peer), agent::sees_all(peer.uid) && paths::has_number(reader)};
}

}  // namespace verbena::commands
