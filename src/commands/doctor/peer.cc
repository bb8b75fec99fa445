// SPDX-License-Identifier: Apache-2.0
#include "commands/doctor/peer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "commands/doctor/echo.h"
#include "commands/doctor/packet_overhead.h"
#include "commands/verbena/names.h"
#include "control/client/mad_client.h"
#include "management/mad/agent_messages.h"
#include "wire/roce/packet.h"

namespace verbena::commands::doctor {
namespace {

using control::LinkStatus;
using control::MadClient;

constexpr Duration kMadPatience = std::chrono::milliseconds(500);
constexpr uint32_t kMadRetries = 3;
constexpr Duration kEchoPatience = std::chrono::milliseconds(300);
constexpr int kEchoTries = 3;
constexpr size_t kSmallEcho = 64;
constexpr Duration kErrorPatience = std::chrono::milliseconds(3500);  // ARP gives up after three seconds
constexpr uint32_t kLargestPathMtu = 4096;
constexpr uint32_t kSmallestPathMtu = 256;

socklen_t length_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

roce::Address gid_of(const sockaddr_storage& address) {
  roce::Address gid;
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return roce::Address::from_ipv4(reinterpret_cast<const uint8_t*>(&ipv4.sin_addr));
  }
  std::memcpy(gid.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, gid.bytes.size());
  return gid;
}

std::string text_of(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  const void* bytes = address.ss_family == AF_INET
                          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr)
                          : &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  inet_ntop(address.ss_family, bytes, text, sizeof text);
  return text;
}

// Returns a socket connected to `peer`; empty, with errno set, if the kernel has no route.
UniqueFd connected_socket(const sockaddr_storage& peer) {
  UniqueFd socket(::socket(peer.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&peer), length_of(peer)) != 0) {
    const int error = errno;
    socket.reset();
    errno = error;
  }
  return socket;
}

const LinkStatus* link_with(const control::AgentStatus& agent, const roce::Address& address) {
  for (const LinkStatus& one : agent.links) {
    const auto has = [&](const control::GidEntry& entry) { return entry.gid == address; };
    if (std::ranges::any_of(one.link.gids, has)) return &one;
  }
  return nullptr;
}

bool accepts(const control::Link& link, const roce::Address& peer) {
  return link.peers.empty() ||
         std::ranges::any_of(link.peers, [&](const roce::Prefix& prefix) { return prefix.contains(peer); });
}

// Queries the peer's version, and if it reports none, its performance counters.
void ask(const LinkStatus& one, const roce::Address& peer, PeerLook& look) {
  const auto client = MadClient::connect(one.link.device_index, {.start_agent = false, .agent_program = {}});
  if (!client) return;
  TimePoint began = MonotonicClock::now();
  auto answer = (*client)->ask(peer, mad::agent_info_request(1).bytes, mad::kAnnouncementOui, kMadPatience,
                               kMadRetries);
  if (!answer) return;
  look.round_trip = MonotonicClock::now() - began;
  look.kind = PeerKind::kOther;
  if (const auto info = mad::decode_agent_info(mad::Mad{*answer})) {
    look.kind = PeerKind::kVerbena;
    look.info = *info;
    return;
  }
  mad::Mad request;
  request.set_kind(mad::kClassPerformance, 1, mad::kMethodGet, mad::kAttributeClassPortInfo);
  request.set(mad::kTransactionAt, uint64_t{2});
  began = MonotonicClock::now();
  answer = (*client)->ask(peer, request.bytes, 0, kMadPatience, kMadRetries);
  if (!answer) return;
  // The first query may include the time for address resolution.
  look.round_trip = std::min<Duration>(look.round_trip, MonotonicClock::now() - began);
  if (mad::Mad{*answer}.get<uint16_t>(mad::kStatusAt) == 0) {
    look.kind = PeerKind::kPerformance;
  }
}

// Sends an empty datagram, which every stack drops. Returns the error that the kernel or the peer's kernel
// reports.
int udp_error(const sockaddr_storage& peer) {
  const UniqueFd socket = connected_socket(peer);
  if (!socket) return errno;
  // IP_RECVERR makes the kernel report soft errors, such as EHOSTUNREACH.
  const bool is_ipv4 = peer.ss_family == AF_INET;
  const int on = 1;
  ::setsockopt(socket.get(), is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6, is_ipv4 ? IP_RECVERR : IPV6_RECVERR, &on,
               sizeof on);
  if (::send(socket.get(), "", 0, 0) < 0) return errno;
  pollfd entry{socket.get(), POLLIN, 0};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(kErrorPatience).count();
  ::poll(&entry, 1, static_cast<int>(ms));
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

void measure(const sockaddr_storage& peer, PeerLook& look) {
  auto echo = Echo::open(peer);
  if (!echo) return;
  look.echoes = echo->comes_back(kSmallEcho, kEchoTries, kEchoPatience);
  if (!*look.echoes) return;
  look.widest = 0;
  for (uint32_t mtu = std::min(look.path_mtu, kLargestPathMtu); mtu >= kSmallestPathMtu; mtu /= 2) {
    if (!echo->comes_back(mtu + kPacketOverhead, kEchoTries, kEchoPatience)) continue;
    look.widest = mtu;
    return;
  }
}

}  // namespace

std::optional<sockaddr_storage> find_peer(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), std::to_string(roce::kUdpPort).c_str(), &hints, &found) != 0) {
    return std::nullopt;
  }
  // Use the first address with a route.
  const addrinfo* best = found;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    sockaddr_storage address{};
    std::memcpy(&address, one->ai_addr, one->ai_addrlen);
    if (!connected_socket(address)) continue;
    best = one;
    break;
  }
  sockaddr_storage address{};
  std::memcpy(&address, best->ai_addr, best->ai_addrlen);
  ::freeaddrinfo(found);
  return address;
}

PeerLook look_at(const sockaddr_storage& peer, const control::AgentStatus& agent) {
  PeerLook look;
  look.address = text_of(peer);
  look.no_wire = agent.no_wire_reason;
  const UniqueFd socket = connected_socket(peer);
  if (!socket) {
    look.route_error = errno;
    return look;
  }
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length);
  look.source = text_of(own);
  const LinkStatus* one = link_with(agent, gid_of(own));
  look.has_link = one != nullptr;
  if (one == nullptr || !look.no_wire.empty()) return look;
  look.link = one->link.name;
  look.is_up = one->link.up;
  look.path_mtu = active_mtu(one->link);
  look.is_refused = !accepts(one->link, gid_of(peer));
  if (!look.is_up || look.is_refused) return look;
  ask(*one, gid_of(peer), look);
  if (look.kind == PeerKind::kNone) look.udp_error = udp_error(peer);
  measure(peer, look);
  return look;
}

}  // namespace verbena::commands::doctor
