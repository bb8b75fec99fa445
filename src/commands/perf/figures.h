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

// The figures of a latency test. Latencies are in microseconds, or in ticks with --report-cycles. For SEND
// and WRITE, a latency is half a round trip. `typical`, `average`, `deviation` and the percentiles leave out
// the two slowest messages, as in perftest. With a fixed duration (-D), `average` covers all messages, and
// `least`, `most`, `typical`, `deviation`, the percentiles and the lists are not set.
struct LatencyFigures {
  std::uint64_t size = 0;
  std::uint64_t iterations = 0;
  double least = 0;
  double most = 0;  // of the second slowest message, as in perftest
  double typical = 0;
  double average = 0;
  double deviation = 0;
  double percentile_99 = 0;
  double percentile_999 = 0;
  double per_second = 0;        // transactions; only with a fixed duration
  double processor_time = 0;    // of this process per message, in microseconds
  std::vector<double> parts;    // averages of 20 equal parts of the test; empty below 20 samples
  Histogram histogram;          // in ticks; with a fixed duration only if Parameters::wants_details()
  double unit = 1;              // a latency is a value of the histogram, divided by this
  std::vector<double> samples;  // in the order of the messages; empty with a fixed duration
  std::vector<double> sorted;   // the same samples, ascending
};
LatencyFigures latency_figures(const LatencyTimes& times, const Parameters& parameters, std::uint64_t size,
                               double ticks_per_microsecond);

BandwidthFigures bandwidth_figures(const BandwidthTimes& times, const Parameters& parameters,
                                   std::uint64_t size, double ticks_per_microsecond);

// Returns the least time per message, in ticks, of any sequence of messages. The time of a sequence reaches
// from the posting of its first message to the completion of its last. The lists are those of BandwidthTimes.
// Returns infinity if they are empty.
double least_time_per_message(std::span<const std::uint64_t> posted,
                              std::span<const std::uint64_t> completed);

}  // namespace verbena::perf
