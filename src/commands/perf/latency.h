// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "commands/perf/endpoint.h"
#include "commands/perf/histogram.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// The times of a latency test, in ticks (see ticks()).
struct LatencyTimes {
  // When each message was posted. Empty with a fixed duration (-D).
  std::vector<std::uint64_t> posted;
  // When the answer to each message came. Only tests of bursts fill this list. In other tests, the answer
  // came when the next message was posted.
  std::vector<std::uint64_t> completed;
  // These three are 0 unless the test has a fixed duration (-D): the number of messages in the part that
  // counts, and when this part began and ended.
  std::uint64_t messages = 0;
  std::uint64_t began = 0;
  std::uint64_t ended = 0;
  Histogram histogram;  // of the times between messages; only with a fixed duration and wants_details()
};

// Sends messages of one size, one at a time. For SEND and WRITE, both ends call this function, and each
// message is answered by one of the peer. For READ and atomics, only the end that initiates calls it. Throws
// verbena::exception if a request fails. Throws std::runtime_error if --verify finds a wrong byte, or if a
// frame of raw Ethernet is lost, except with a fixed duration (-D).
LatencyTimes measure_latency(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size);

}  // namespace verbena::perf
