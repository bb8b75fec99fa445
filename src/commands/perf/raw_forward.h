// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands/perf/bandwidth.h"
#include "commands/perf/endpoint.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Sends each frame that comes back to its source, from the memory into which it came (--mac_fwd). Returns the
// times of the frames that were sent. Throws std::runtime_error if too few come, and verbena::exception if a
// request fails. REQUIRES: the buffer has a place for each receive, and the send queue is as long as the
// receive queue
BandwidthTimes forward_frames(Endpoint& endpoint, const Parameters& parameters);

}  // namespace verbena::perf
