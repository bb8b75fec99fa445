// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "commands/perf/endpoint.h"
#include "commands/perf/histogram.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// The times of a latency test, in ticks.
struct LatencyTimes {
  // When each message was posted. Empty if the duration is fixed; then only these count:
  std::vector<std::uint64_t> posted;
  // When the answer to each message came. Only tests of bursts have it; others send the next message then.
  std::vector<std::uint64_t> completed;
  std::uint64_t messages = 0;
  std::uint64_t began = 0;
  std::uint64_t ended = 0;
  Histogram histogram;  // of the times between messages; empty unless details are wanted
};

// Sends messages of one size, one at a time. SEND and WRITE go there and back, and both ends run this; READ
// and atomics are done by the end that initiates. Throws verbena::exception if a request fails.
LatencyTimes measure_latency(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size);

}  // namespace verbena::perf
