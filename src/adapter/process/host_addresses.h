// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "control/model/link.h"
#include "wire/roce/path.h"

namespace verbena::engine {

// The GIDs of this host's links.
struct HostAddresses {
  // Of links that are up. A default GID is made from a MAC address, and the host may not have it as an
  // address: packets to it then do not arrive. So a link-local GID counts only if an interface has that
  // address.
  std::vector<roce::Address> reachable;
  std::vector<roce::Address> unreachable;  // all others
};
HostAddresses host_addresses(const std::vector<control::Link>& links);

}  // namespace verbena::engine
