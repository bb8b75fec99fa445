// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "agent/cm/address.h"
#include "agent/cm/neighbour_message.h"
#include "base/result.h"

struct mnl_socket;

namespace verbena::agent {

struct RouteQuestion {
  CmAddress source{};  // family 0 or a wildcard: the route says
  CmAddress destination{};
  uint32_t interface_index = 0;  // 0: the route says
  uint8_t type_of_service = 0;
};

struct RouteAnswer {
  CmAddress source{};            // without a port
  uint32_t interface_index = 0;  // the netdev it leaves by; the loopback netdev for addresses of this host
  bool is_local = false;         // an address of this host
  CmAddress next_hop{};          // family 0: no neighbour is needed, as for a multicast group
  uint8_t hop_limit = 64;
};

// Asks the kernel for routes (rtnetlink's RTM_GETROUTE). It answers at once, so this never waits. Of one
// thread.
class RouteQuery {
 public:
  static Result<RouteQuery> open();

  // Errors are the kernel's: ENETUNREACH, EHOSTUNREACH, EACCES (prohibited), EINVAL (a source that is none of
  // ours).
  Result<RouteAnswer> ask(const RouteQuestion& question);

  // Whether a netdev's neighbour is known, as the kernel's rdma_cm wants it: its hardware address is there,
  // be it a little old, or the netdev needs none. REQUIRES: has_known_family(neighbour)
  bool knows_neighbour(uint32_t interface_index, const CmAddress& neighbour);
  // All that the kernel has.
  std::vector<NeighbourMessage> neighbours();

 private:
  struct Closer {
    void operator()(mnl_socket* socket) const;
  };
  bool needs_no_neighbours(uint32_t interface_index);
  explicit RouteQuery(mnl_socket* socket) : socket_(socket) {}

  std::unique_ptr<mnl_socket, Closer> socket_;
  uint32_t sequence_ = 0;
};

}  // namespace verbena::agent
