// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "commands/perf/endpoint.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// The times of a bandwidth test, in ticks.
struct BandwidthTimes {
  std::uint64_t messages = 0;
  std::uint64_t began = 0;
  std::uint64_t ended = 0;
  // For the peak: when each message was posted, and when the message with this number and all before it had
  // completed; 0 for messages without a completion of their own. Empty without a peak.
  std::vector<std::uint64_t> posted;
  std::vector<std::uint64_t> completed;
};

// Sends or receives messages of one size, as many at a time as the queues hold; or both. With
// --run_infinitely, calls `show` after each duration and never returns. Throws verbena::exception if a
// request fails.
BandwidthTimes measure_bandwidth(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size,
                                 const std::function<void(const BandwidthTimes&)>& show = {});

// Sends a queue full of messages, so that memory and caches are warm (--perform_warm_up).
void warm_up(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size);

}  // namespace verbena::perf
