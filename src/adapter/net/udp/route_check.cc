// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/route_check.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include <linux/filter.h>
#include <linux/if.h>
#include <linux/neighbour.h>
#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "adapter/net/packet/flow_filter.h"
#include "adapter/net/udp/socket_address.h"
#include "base/cancellation_off.h"
#include "base/failed_call.h"
#include "base/plain_calls.h"
#include "base/socket_option.h"
#include "wire/roce/packet.h"
#include "wire/roce/prefix.h"

namespace verbena::net {

namespace {

constexpr uint16_t kDiscardPort = 9;

constexpr size_t kIpv4Bytes = 4;
constexpr size_t kIpv6Bytes = 16;

uint8_t family_of(const roce::Address& address) {
  return address.is_ipv4() ? AF_INET : AF_INET6;
}

// The address in the kernel's form: four bytes for IPv4, sixteen for IPv6.
std::span<const uint8_t> bytes_of(const roce::Address& address) {
  const size_t bytes = address.is_ipv4() ? kIpv4Bytes : kIpv6Bytes;
  return std::span(address.bytes).last(bytes);
}

roce::Address address_from(const std::byte* data, size_t bytes) {
  roce::Address address;
  if (bytes == kIpv4Bytes) return roce::Address::from_ipv4(reinterpret_cast<const uint8_t*>(data));
  if (bytes == kIpv6Bytes) std::memcpy(address.bytes.data(), data, bytes);
  return address;
}

// Calls read(type, data, bytes) for each attribute.
template <class Read>
void for_each_attribute(std::span<const std::byte> attributes, const Read& read) {
  while (attributes.size() >= sizeof(rtattr)) {
    rtattr header;
    std::memcpy(&header, attributes.data(), sizeof header);
    if (header.rta_len < sizeof header || header.rta_len > attributes.size()) return;
    read(header.rta_type, attributes.data() + RTA_LENGTH(0), header.rta_len - RTA_LENGTH(0));
    attributes = attributes.subspan(std::min<size_t>(RTA_ALIGN(header.rta_len), attributes.size()));
  }
}

// The kernel gives up after some tries, and looks again when something else is sent.
constexpr Duration kSearchInterval = std::chrono::milliseconds(250);

// Whether the kernel's error says that there is no route. Others say that it cannot be asked.
bool says_no_route(int error) {
  static constexpr int kErrors[] = {ENETUNREACH, EHOSTUNREACH, EACCES};
  return std::ranges::find(kErrors, error) != std::end(kErrors);
}

enum class Neighbour : uint8_t { kFound, kUnknown, kSilent };

// Asks for a neighbour's state. One that the kernel cannot be asked about counts as found.
Neighbour look_up(RouteSocket& routes, const NextHop& hop) {
  // NUD_VALID: the hardware address may be used, even if it is a little old.
  constexpr uint16_t kValid = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
  const auto state = routes.neighbour_state(hop);
  if (!state) return state.error().code == ENOENT ? Neighbour::kUnknown : Neighbour::kFound;
  if ((*state & kValid) != 0) return Neighbour::kFound;
  return (*state & NUD_FAILED) != 0 ? Neighbour::kSilent : Neighbour::kUnknown;
}

// Whether the kernel looks for no hardware addresses on this device, or keeps them under other names than the
// neighbour's address. True also if the device cannot be asked about.
bool needs_no_neighbours(RouteSocket& routes, uint32_t interface_index) {
  const auto flags = routes.device_flags(interface_index);
  return !flags || (*flags & (IFF_NOARP | IFF_POINTOPOINT | IFF_LOOPBACK)) != 0;
}

// Sends an empty datagram to the path's destination. The kernel chooses the source if the path has none, and
// the device likewise. Returns 0, or the errno value of sendmsg(2).
int send_empty_datagram(int socket, const roce::Path& path, uint16_t port) {
  SocketAddress name = destination_of(path, port);
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(in6_pktinfo))];
  ControlWriter writer(control, 0);
  msghdr message{};
  message.msg_name = &name;
  message.msg_namelen = name.length();
  if (path.destination.is_ipv4()) {
    in_pktinfo info{};
    info.ipi_ifindex = static_cast<int>(path.interface_index);
    if (path.source.is_ipv4()) std::memcpy(&info.ipi_spec_dst, path.source.ipv4(), kIpv4Bytes);
    writer.put(IPPROTO_IP, IP_PKTINFO, info);
  } else {
    in6_pktinfo info{};
    info.ipi6_ifindex = path.interface_index;
    std::memcpy(&info.ipi6_addr, path.source.bytes.data(), kIpv6Bytes);
    writer.put(IPPROTO_IPV6, IPV6_PKTINFO, info);
  }
  message.msg_control = control;
  message.msg_controllen = writer.used();
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

// Sends the datagram to the discard port, or to RoCE's port if a firewall refuses that.
int send_empty_datagram(int socket, const roce::Path& path) {
  const int error = send_empty_datagram(socket, path, kDiscardPort);
  const bool is_refused = error == EPERM || error == EACCES;
  return is_refused ? send_empty_datagram(socket, path, roce::kUdpPort) : error;
}

roce::Path path_to(const NextHop& hop) {
  roce::Path path;
  path.destination = hop.address;
  path.interface_index = hop.interface_index;
  return path;
}

// Makes the kernel look for the neighbour. Returns 0, or the errno value of sendmsg(2).
int send_search(int socket, const NextHop& hop) {
  return send_empty_datagram(socket, path_to(hop));
}

UniqueFd open_search(bool ipv4) {
  return UniqueFd(
      plain_socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP));
}

// Opens the kernel's news of neighbours, which only say when to look again.
UniqueFd open_news() {
  UniqueFd news(plain_socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  sockaddr_nl name{};
  name.nl_family = AF_NETLINK;
  name.nl_groups = RTMGRP_NEIGH;
  if (news && ::bind(news.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) news.reset();
  return news;
}

void await_news(int news, Duration patience) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::max(patience, Duration(0))).count();
  pollfd entry{news, POLLIN, 0};
  plain_poll(&entry, 1, static_cast<int>(left));
  // Others may cause news faster than they are read here. The next call reads the rest.
  constexpr int kMaxNews = 64;
  std::byte one[1];
  for (int i = 0; i < kMaxNews; ++i) {
    if (::recv(news, one, sizeof one, MSG_DONTWAIT) < 0 && errno != ENOBUFS) return;
  }
}

// Makes the kernel look for the neighbour, and returns the result; kFound if nobody can look.
Neighbour search(RouteSocket& routes, const roce::Path& path, NextHop hop, Duration patience) {
  const CancellationOff whole;
  const UniqueFd news = open_news();
  const UniqueFd socket = open_search(hop.address.is_ipv4());
  if (!news || !socket) return Neighbour::kFound;
  const TimePoint end = MonotonicClock::now() + patience;
  TimePoint next_try{};
  for (;;) {
    const TimePoint now = MonotonicClock::now();
    if (now >= next_try) {
      // The route may have changed: the route of an own IPv6 address appears some time after the address.
      const auto again = routes.next_hop(path);
      if (!again || again->address.is_ipv4() != hop.address.is_ipv4()) return Neighbour::kFound;
      hop = *again;
      if (hop.address.is_zero()) return Neighbour::kFound;
      if (send_search(socket.get(), hop) != 0) return Neighbour::kFound;
      next_try = now + kSearchInterval;
    }
    const Neighbour found = look_up(routes, hop);
    if (found == Neighbour::kFound) return found;
    if (now >= end) return Neighbour::kSilent;
    await_news(news.get(), std::min(end, next_try) - now);
  }
}

Result<void> check_neighbour(RouteSocket& routes, const roce::Path& path, const NextHop& hop,
                             Duration patience) {
  Neighbour found = look_up(routes, hop);
  if (found == Neighbour::kFound || needs_no_neighbours(routes, hop.interface_index)) return {};
  if (patience > Duration(0)) found = search(routes, path, hop, patience);
  if (found != Neighbour::kSilent) return {};
  const char* const asked = hop.address.is_ipv4() ? "ARP" : "neighbour discovery";
  const std::string there = roce::text_of(path.destination);
  return hop.address == path.destination
             ? fail(because(ETIMEDOUT, "{} does not answer {}: no such host, or it is down", there, asked))
             : fail(because(ETIMEDOUT, "the router {} on the way to {} does not answer {}",
                            roce::text_of(hop.address), there, asked));
}

}  // namespace

namespace {

constexpr int kSearchBufferBytes = 1 << 20;
// The pause after an attempt to bind a socket, as a multiple of the time that it took, and its least length.
constexpr int kBindPause = 100;
constexpr Duration kLeastBindPause = std::chrono::milliseconds(100);

int queued_bytes(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

// Makes the kernel report the time at which a datagram of the socket reaches the network device.
bool ask_for_send_times(int socket) {
  const int when = SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY;
  return set_option(socket, SOL_SOCKET, SO_TIMESTAMPING, when);
}

bool take_send_time(int socket) {
  std::byte nothing[1];
  return ::recv(socket, nothing, sizeof nothing, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0;
}

// Whether the datagram that was just sent waits. A datagram that was dropped gets no time stamp either, but
// is in no queue. If others waited already (`was_empty` is false), a dropped one counts as waiting: when a
// neighbour's queue is full, the kernel drops an old one for each new one.
bool is_still_waiting(int socket, bool was_empty) {
  if (was_empty && queued_bytes(socket) == 0) return false;
  return !take_send_time(socket);
}

// Sends an empty datagram along the path, and returns whether it waits in the kernel. Errors: the kernel's.
// REQUIRES: ask_for_send_times(socket) was successful
Result<bool> waits_after_sending(int socket, const roce::Path& path) {
  while (take_send_time(socket)) continue;  // of earlier datagrams, which had to wait
  const bool was_empty = queued_bytes(socket) == 0;
  if (const int error = send_empty_datagram(socket, path); error != 0) return fail(error);
  return is_still_waiting(socket, was_empty);
}

// waits_for_neighbour() from this socket, with the same requirement.
std::optional<bool> waits_from(int socket, const roce::Path& path) {
  if (path.destination.is_multicast()) return false;
  const CancellationOff whole;
  const auto waits = waits_after_sending(socket, path);
  if (waits) return *waits;
  return says_no_route(waits.error().code) ? std::optional(false) : std::nullopt;
}

// Opens a socket of its own port, which receives nothing.
UniqueFd bind_search(bool ipv4) {
  UniqueFd socket = open_search(ipv4);
  if (!socket) return {};
  roce::Path anywhere;
  if (ipv4) anywhere.destination = roce::Address::from_ipv4(std::array<uint8_t, kIpv4Bytes>{}.data());
  const SocketAddress name = destination_of(anywhere, 0);
  const FilterProgram closed = make_closed_filter();
  const sock_fprog program{static_cast<unsigned short>(closed.size()),
                           const_cast<sock_filter*>(closed.data())};
  const bool is_ready = set_option(socket.get(), SOL_SOCKET, SO_ATTACH_FILTER, program) &&
                        ask_for_send_times(socket.get()) &&
                        ::bind(socket.get(), &name.generic, name.length()) == 0;
  if (!is_ready) return {};
  set_send_buffer(socket.get(), kSearchBufferBytes);
  return socket;
}

}  // namespace

NeighbourSearches::NeighbourSearches(TimePoint (*clock)()) : clock_(clock) {
  bind_missing(ipv4_);
  bind_missing(ipv6_);
}

// Stops at the first failure: where no port is free, the kernel walks over all UDP sockets to find out.
void NeighbourSearches::bind_missing(Sockets& sockets) {
  const TimePoint begun = clock_();
  for (UniqueFd& each : sockets.bound) {
    if (!each) each = bind_search(sockets.ipv4);
    if (each) continue;
    const TimePoint now = clock_();
    next_bind_ = now + std::max(kLeastBindPause, kBindPause * (now - begun));
    return;
  }
}

// Returns -1 if there is no socket.
int NeighbourSearches::socket_for(const roce::Address& neighbour) {
  Sockets& sockets = neighbour.is_ipv4() ? ipv4_ : ipv6_;
  if (!sockets.bound.back() && clock_() >= next_bind_) bind_missing(sockets);
  int last = -1;
  for (const UniqueFd& each : sockets.bound) {
    if (!each) break;
    last = each.get();
    const auto buffer = get_option<int>(last, SOL_SOCKET, SO_SNDBUF);
    if (buffer && queued_bytes(last) <= *buffer / 2) break;
  }
  return last;
}

int NeighbourSearches::search(uint32_t interface_index, const roce::Address& neighbour) {
  const int socket = socket_for(neighbour);
  return socket >= 0 ? send_search(socket, {neighbour, interface_index}) : EADDRINUSE;
}

std::optional<bool> NeighbourSearches::waits(const roce::Path& path) {
  const int socket = socket_for(path.destination);
  return socket >= 0 ? waits_from(socket, path) : std::nullopt;
}

std::optional<bool> NeighbourSearches::is_known(uint32_t interface_index, const roce::Address& neighbour) {
  const int socket = socket_for(neighbour);
  if (socket < 0) return std::nullopt;
  const auto waits = waits_after_sending(socket, path_to({neighbour, interface_index}));
  return waits ? std::optional(!*waits) : std::nullopt;
}

template <class Body>
struct RouteSocket::Question {
  nlmsghdr header{};
  Body body{};
  alignas(4) std::byte attributes[64]{};
  size_t used = 0;

  void put(uint16_t type, const void* data, size_t bytes) {
    const rtattr attribute{static_cast<uint16_t>(RTA_LENGTH(bytes)), type};
    std::memcpy(attributes + used, &attribute, sizeof attribute);
    std::memcpy(attributes + used + RTA_LENGTH(0), data, bytes);
    used += RTA_SPACE(bytes);
  }
  void put(uint16_t type, const roce::Address& address) {
    const auto bytes = bytes_of(address);
    put(type, bytes.data(), bytes.size());
  }
};

RouteSocket::RouteSocket() : fd_(plain_socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) {}

// Sends the question and calls read(body, attributes) with the answer.
template <class Body, class Read>
Result<void> RouteSocket::ask(Question<Body>& question, uint16_t type, const Read& read) {
  question.header.nlmsg_len = static_cast<uint32_t>(NLMSG_LENGTH(sizeof(Body)) + question.used);
  question.header.nlmsg_type = type;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  if (::send(fd_.get(), &question, question.header.nlmsg_len, 0) < 0) return fail(EAGAIN);
  alignas(nlmsghdr) std::byte buffer[8192];
  const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(Body)))) return fail(EAGAIN);
  nlmsghdr header;
  std::memcpy(&header, buffer, sizeof header);
  if (header.nlmsg_type == NLMSG_ERROR) {
    nlmsgerr error;
    std::memcpy(&error.error, buffer + NLMSG_LENGTH(0), sizeof error.error);
    return fail(error.error != 0 ? -error.error : EAGAIN);
  }
  Body body;
  std::memcpy(&body, buffer + NLMSG_LENGTH(0), sizeof body);
  read(body, std::span<const std::byte>(buffer, static_cast<size_t>(got)).subspan(NLMSG_SPACE(sizeof body)));
  return {};
}

Result<NextHop> RouteSocket::next_hop(const roce::Path& path) {
  Question<rtmsg> question;
  question.body.rtm_family = family_of(path.destination);
  question.body.rtm_dst_len = question.body.rtm_src_len = path.destination.is_ipv4() ? 32 : 128;
  question.put(RTA_DST, path.destination);
  question.put(RTA_SRC, path.source);
  if (path.interface_index != 0) question.put(RTA_OIF, &path.interface_index, sizeof path.interface_index);
  NextHop hop;
  return ask(question, RTM_GETROUTE,
             [&](const rtmsg& route, auto attributes) {
               if (route.rtm_type != RTN_UNICAST) return;
               hop.address = path.destination;
               for_each_attribute(attributes, [&](uint16_t type, const std::byte* data, size_t bytes) {
                 if (type == RTA_OIF && bytes == sizeof hop.interface_index) {
                   std::memcpy(&hop.interface_index, data, bytes);
                 } else if (type == RTA_GATEWAY) {
                   hop.address = address_from(data, bytes);
                 } else if (type == RTA_VIA &&
                            bytes > sizeof(rtvia)) {  // a gateway of the other family (RFC 5549)
                   hop.address = address_from(data + sizeof(rtvia), bytes - sizeof(rtvia));
                 }
               });
             })
      .map([&] { return hop; });
}

Result<uint16_t> RouteSocket::neighbour_state(const NextHop& neighbour) {
  Question<ndmsg> question;
  question.body.ndm_family = family_of(neighbour.address);
  question.body.ndm_ifindex = static_cast<int32_t>(neighbour.interface_index);
  question.put(NDA_DST, neighbour.address);
  uint16_t state = NUD_NONE;
  return ask(question, RTM_GETNEIGH, [&](const ndmsg& entry, auto) { state = entry.ndm_state; }).map([&] {
    return state;
  });
}

Result<unsigned> RouteSocket::device_flags(uint32_t interface_index) {
  ifreq request{};
  request.ifr_ifindex = static_cast<int>(interface_index);
  if (::ioctl(fd_.get(), SIOCGIFNAME, &request) != 0 || ::ioctl(fd_.get(), SIOCGIFFLAGS, &request) != 0)
    return fail(errno);
  return static_cast<uint16_t>(request.ifr_flags);
}

Result<void> check_route(const roce::Path& path, Duration patience) {
  if (path.destination.is_multicast()) return {};
  if (path.destination.is_link_local() && path.interface_index == 0) return {};
  if (path.source.is_ipv4() != path.destination.is_ipv4()) return {};  // sending fails for another reason
  RouteSocket routes;
  if (!routes) return {};
  const auto hop = routes.next_hop(path);
  if (hop) return hop->address.is_zero() ? Result<void>() : check_neighbour(routes, path, *hop, patience);
  if (!says_no_route(hop.error().code)) return {};
  return fail(because(hop.error().code, "no route to {} from {}", roce::text_of(path.destination),
                      roce::text_of(path.source)));
}

std::optional<bool> waits_for_neighbour(const roce::Path& path) {
  const UniqueFd socket = open_search(path.destination.is_ipv4());
  if (!socket || !ask_for_send_times(socket.get())) return std::nullopt;
  return waits_from(socket.get(), path);
}

}  // namespace verbena::net
