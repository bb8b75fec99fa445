// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "agent/cm/address.h"
#include "agent/links/netlink_attributes.h"
#include "base/result.h"

namespace verbena::agent {

struct NeighbourMessage;

// A route lookup, like that of `ip route get`.
struct RouteQuestion {
  CmAddress source{};  // family 0 or a wildcard: the kernel chooses
  CmAddress destination{};
  uint32_t interface_index = 0;  // outgoing netdev; 0: the kernel chooses
  uint8_t type_of_service = 0;
};

struct RouteAnswer {
  CmAddress source{};            // without a port
  uint32_t interface_index = 0;  // outgoing netdev; the loopback netdev for addresses of this host
  bool is_local = false;         // the destination is an address of this host
  CmAddress next_hop{};          // family 0: no neighbour is needed, as for a multicast group
  uint8_t hop_limit = 64;
};

// Queries routes and neighbours from the kernel by rtnetlink (RTM_GETROUTE, RTM_GETNEIGH). The kernel answers
// at once, so this class never waits. For one thread.
class RouteQuery {
 public:
  static Result<RouteQuery> open();

  // Returns the kernel's route. Errors are the kernel's: ENETUNREACH, EHOSTUNREACH, EACCES (prohibited),
  // EINVAL (the source is no address of this host).
  Result<RouteAnswer> ask(const RouteQuestion& question);

  // Returns whether the neighbour's hardware address is known, even if it is stale, or the netdev needs none.
  // The kernel's rdma_cm has the same condition. REQUIRES: has_known_family(neighbour)
  bool knows_neighbour(uint32_t interface_index, const CmAddress& neighbour);
  // Returns all IPv4 and IPv6 neighbours that the kernel knows, on all netdevs.
  std::vector<NeighbourMessage> neighbours();

 private:
  bool needs_no_neighbours(uint32_t interface_index);
  explicit RouteQuery(NetlinkSocket socket) : socket_(std::move(socket)) {}

  NetlinkSocket socket_;
  uint32_t sequence_ = 0;
};

}  // namespace verbena::agent
