// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "control/model/link.h"
#include "wire/roce/path.h"

namespace verbena::engine {

// Returns the GIDs that are addresses of this host, of links that are up. A link's default GID is made from
// its MAC address, and need not be an address of the host. Packets to such a GID do not arrive.
std::vector<roce::Address> host_addresses(const std::vector<control::Link>& links);

}  // namespace verbena::engine
