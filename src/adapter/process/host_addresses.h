// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "control/model/link.h"
#include "wire/roce/path.h"

namespace verbena::engine {

// The GIDs of links that are up and are addresses of this host. A link's default GID is made from its MAC
// address and need not be an address of the host; then nothing that is sent to it arrives.
std::vector<roce::Address> host_addresses(const std::vector<control::Link>& links);

}  // namespace verbena::engine
