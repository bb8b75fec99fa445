// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "control/model/link.h"
#include "wire/roce/path.h"

namespace verbena::engine {

// Returns the GIDs that are addresses of this host, of links that are up. A default GID is made from a MAC
// address, and the host may not have it as an address: packets to it then do not arrive. So a link-local GID
// is returned only if an interface has that address.
std::vector<roce::Address> host_addresses(const std::vector<control::Link>& links);

}  // namespace verbena::engine
