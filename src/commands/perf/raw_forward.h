// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands/perf/bandwidth.h"
#include "commands/perf/endpoint.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Sends each frame that has arrived back to its source (--mac_fwd). Exchanges the MAC addresses of the frame,
// and sends it from the memory into which it came. Returns the times of the frames that were sent. Throws
// std::runtime_error if no frame comes for Patience::kLimit and the test has no fixed duration. Throws
// verbena::exception if a request fails. REQUIRES: the buffer has a place for each receive, and the send
// queue is as long as the receive queue
BandwidthTimes forward_frames(Endpoint& endpoint, const Parameters& parameters);

}  // namespace verbena::perf
