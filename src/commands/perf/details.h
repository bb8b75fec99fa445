// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "commands/perf/exchange.h"
#include "commands/perf/figures.h"

namespace verbena::perf {

// The percentiles that are shown. `part`: the part of all messages, from 0 to 1.
struct Percentile {
  const char* name;
  double part;
};
inline constexpr std::array kPercentiles{
    Percentile{"p50", 0.5},     Percentile{"p90", 0.9},       Percentile{"p99", 0.99},
    Percentile{"p99.9", 0.999}, Percentile{"p99.99", 0.9999}, Percentile{"p99.999", 0.99999},
};

// Returns the latency that `part` of all messages do not exceed: 0.5 for the median. The unit is that of
// LatencyFigures.
double percentile(const LatencyFigures& figures, double part);

// Print what --details asks for, below the row of a test.
void print_details(const LatencyFigures& figures);
void print_details(const BandwidthFigures& figures);

}  // namespace verbena::perf
