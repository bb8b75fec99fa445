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
  bool up = false;       // an administrator has switched it on
  bool carrier = false;  // its cable is there
  bool loopback = false;
  uint32_t master = 0;  // the bridge or bond that it is a port of; 0: none
  bool has_address = false;
};

// A route that lets through less than its netdev.
struct NarrowRoute {
  uint32_t netdev = 0;  // its index
  std::string destination;
  uint32_t mtu = 0;
  bool learned = false;  // a router has said so; else an administrator

  friend bool operator==(const NarrowRoute&, const NarrowRoute&) = default;
};

struct Netdevs {
  std::vector<Netdev> all;
  std::vector<NarrowRoute> narrow_routes;  // each once
};

// What the kernel says of this network namespace; needs no privilege.
Result<Netdevs> read_netdevs();

}  // namespace verbena::commands::doctor
