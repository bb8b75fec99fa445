// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/route_check.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>

#include <linux/if.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/socket.h>

#include "adapter/net/udp/neighbour_search.h"
#include "adapter/net/udp/route_socket.h"
#include "base/cancellation_off.h"
#include "base/failed_call.h"
#include "base/plain_calls.h"
#include "base/unique_fd.h"
#include "wire/roce/prefix.h"

namespace verbena::net {
namespace {

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
  std::byte one[1];
  while (::recv(news, one, sizeof one, MSG_DONTWAIT) >= 0 || errno == ENOBUFS) continue;
}

// Makes the kernel look for the neighbour, and returns the result; kFound if nobody can look.
Neighbour search(RouteSocket& routes, const roce::Path& path, NextHop hop, Duration patience) {
  const CancellationOff whole;
  const UniqueFd news = open_news();
  const UniqueFd socket = open_neighbour_search(hop.address.is_ipv4());
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
      if (search_neighbour(socket.get(), hop.interface_index, hop.address) != 0) return Neighbour::kFound;
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

}  // namespace verbena::net
