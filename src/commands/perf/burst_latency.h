// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "commands/perf/endpoint.h"
#include "commands/perf/latency.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Measures latency under load (raw_ethernet_burst_lat): the client sends bursts of frames, and the server
// answers each frame, or each n-th one (--reply_every). The times are those from such a frame to its answer.
// The server has none. Throws std::runtime_error if frames were lost, and verbena::exception if a request
// fails.
LatencyTimes measure_burst_latency(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size);

}  // namespace verbena::perf
