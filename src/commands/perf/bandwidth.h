// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "commands/perf/endpoint.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// The times of a bandwidth test, in ticks (see ticks()). With a fixed duration (-D), the first and the last
// part of the test are margins. `messages`, `began` and `ended` then cover only the part between them.
struct BandwidthTimes {
  std::uint64_t messages = 0;
  std::uint64_t began = 0;
  std::uint64_t ended = 0;
  // Both lists are empty unless the test calculates the peak bandwidth (Parameters::has_peak). They number
  // the messages of all queue pairs together. posted[i] is the time when message i was posted. If requests
  // are posted together (-l), only the first of them has a time and the others have 0. completed[i] is the
  // time when the number of completed messages became i + 1. It is 0 if no completion brought the number to
  // exactly i + 1.
  std::vector<std::uint64_t> posted;
  std::vector<std::uint64_t> completed;
};

// Sends messages of one size, receives them, or does both, as the test says. Keeps as many under way as the
// queues hold. With --run_infinitely, calls `show` after each duration and never returns. A polling test with
// a number of messages returns early if nothing completes for Patience::kLimit, and says so on stderr. Throws
// verbena::exception if a request fails, and std::runtime_error if --verify finds a wrong byte.
BandwidthTimes measure_bandwidth(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size,
                                 const std::function<void(const BandwidthTimes&)>& show = {});

// Sends as many messages from each queue pair as its send queue holds, and waits for their completions. So
// memory and caches are warm (--perform_warm_up). Throws verbena::exception if a request fails.
void warm_up(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size);

}  // namespace verbena::perf
