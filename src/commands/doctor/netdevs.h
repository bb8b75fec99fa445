// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace verbena::commands::doctor {

struct Netdev {
  uint32_t index = 0;
  std::string name;
  uint32_t mtu = 0;
  bool up = false;       // an administrator switched it on (IFF_UP)
  bool carrier = false;  // it has a signal, as with a plugged-in cable (IFF_LOWER_UP)
  bool loopback = false;
  uint32_t master = 0;  // index of the bridge or bond that has this device as a port; 0 if none
  bool has_address = false;
};

// A route with an MTU of its own (RTAX_MTU). That MTU is usually smaller than the network device's.
struct NarrowRoute {
  uint32_t netdev = 0;  // index of the network device that the route leads through
  std::string destination;
  uint32_t mtu = 0;
  bool learned = false;  // the MTU was learned from a router (path MTU discovery), not configured

  friend bool operator==(const NarrowRoute&, const NarrowRoute&) = default;
};

struct Netdevs {
  std::vector<Netdev> all;
  std::vector<NarrowRoute> narrow_routes;  // without duplicates
};

// Reads the network devices, addresses and routes of this network namespace. Needs no privilege.
Result<Netdevs> read_netdevs();

}  // namespace verbena::commands::doctor
