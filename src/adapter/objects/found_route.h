// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/time.h"
#include "wire/roce/path.h"

namespace verbena::adapter {

// The path whose next hop was found by the calling thread's last search (base/route_search.h). A thread that
// serves several peers searches before it connects a QP. The hardware address may be lost between the two
// calls, and the peer can choose when. So the connecting call must not wait for that address again.
//
// Each thread has a path of its own.

// Records the path that a search has found.
void set_found_route(const roce::Path& path);
// Returns the time that a call of this thread may wait for the next hop of the path. Returns 0 if the path is
// the recorded one, and forgets it. Otherwise returns transport::kNeighbourPatience, as the kernel waits.
Duration neighbour_patience(const roce::Path& path);

}  // namespace verbena::adapter
