// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "commands/perf/endpoint.h"
#include "commands/perf/latency.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Measures latency under load (raw_ethernet_burst_lat): the client sends bursts of frames, and the server
// answers each frame, or each n-th one (--reply_every). At the client, returns when each answered frame was
// posted and when its answer came. At the server, returns no times. Throws std::runtime_error if no frame
// comes for Patience::kLimit, and verbena::exception if a request fails.
LatencyTimes measure_burst_latency(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size);

}  // namespace verbena::perf
