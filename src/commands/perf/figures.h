// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "commands/perf/bandwidth.h"
#include "commands/perf/exchange.h"
#include "commands/perf/histogram.h"
#include "commands/perf/latency.h"
#include "commands/perf/parameters.h"

// Calculates the figures of a test from its times, as perftest does.
namespace verbena::perf {

// Latencies are in microseconds, or in ticks with --report-cycles: half a round trip for SEND and WRITE.
struct LatencyFigures {
  std::uint64_t size = 0;
  std::uint64_t iterations = 0;
  double least = 0;
  double most = 0;  // as in perftest without the two slowest messages
  double typical = 0;
  double average = 0;
  double deviation = 0;
  double percentile_99 = 0;
  double percentile_999 = 0;
  double per_second = 0;        // only with a fixed duration: transactions
  double processor_time = 0;    // of this process per message, in microseconds
  std::vector<double> parts;    // the average of each part of the test
  Histogram histogram;          // in units of `unit`
  double unit = 1;              // ticks of the histogram per microsecond or cycle of latency
  std::vector<double> samples;  // in the order of the messages; empty with a fixed duration
  std::vector<double> sorted;
};
LatencyFigures latency_figures(const LatencyTimes& times, const Parameters& parameters, std::uint64_t size,
                               double ticks_per_microsecond);

BandwidthFigures bandwidth_figures(const BandwidthTimes& times, const Parameters& parameters,
                                   std::uint64_t size, double ticks_per_microsecond);

// The least time per message of any sequence of messages, from the posting of its first to the completion of
// its last.
double least_time_per_message(std::span<const std::uint64_t> posted,
                              std::span<const std::uint64_t> completed);

}  // namespace verbena::perf
