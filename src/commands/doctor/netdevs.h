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
  bool up = false;       // IFF_UP: switched on by an administrator
  bool carrier = false;  // the cable is plugged in
  bool loopback = false;
  uint32_t master = 0;  // index of the bridge or bond that it is a port of; 0: none
  bool has_address = false;
};

// A route with a smaller MTU than its network device.
struct NarrowRoute {
  uint32_t netdev = 0;  // the index of its network device
  std::string destination;
  uint32_t mtu = 0;
  bool learned = false;  // from a router (path MTU discovery), not configured

  friend bool operator==(const NarrowRoute&, const NarrowRoute&) = default;
};

struct Netdevs {
  std::vector<Netdev> all;
  std::vector<NarrowRoute> narrow_routes;  // without duplicates
};

// Reads the network devices, addresses and routes of this network namespace. Needs no privilege.
Result<Netdevs> read_netdevs();

}  // namespace verbena::commands::doctor
