// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/details.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace verbena::perf {
namespace {

constexpr std::size_t kBar = 50;  // columns

// A line of the histogram: all latencies between two powers of the square root of two.
struct Line {
  double upper;
  std::uint64_t count;
};

std::vector<Line> lines_of(const LatencyFigures& figures) {
  std::vector<Line> lines;
  figures.histogram.for_each([&](std::uint64_t, std::uint64_t upper, std::uint64_t count) {
    const double value = static_cast<double>(upper) / figures.unit;
    const double limit = std::exp2(std::ceil(std::log2(value) * 2) / 2);
    if (lines.empty() || lines.back().upper < limit) lines.push_back({limit, 0});
    lines.back().count += count;
  });
  return lines;
}

}  // namespace

double percentile(const LatencyFigures& figures, double part) {
  if (figures.sorted.empty()) return static_cast<double>(figures.histogram.percentile(part)) / figures.unit;
  const auto count = static_cast<double>(figures.sorted.size());
  const auto index = static_cast<std::size_t>(std::max(std::ceil(count * part) - 1, 0.0));
  return figures.sorted[std::min(index, figures.sorted.size() - 1)];
}

void print_details(const LatencyFigures& figures) {
  std::printf("  latency  ");
  for (const Percentile& each : kPercentiles)
    std::printf("  %s %.2f", each.name, percentile(figures, each.part));
  std::printf("  max %.2f\n", static_cast<double>(figures.histogram.largest()) / figures.unit);
  const std::vector<Line> lines = lines_of(figures);
  const auto most = std::ranges::max_element(lines, {}, &Line::count);
  for (const Line& each : lines) {
    const std::size_t length = (each.count * kBar + most->count - 1) / most->count;
    std::printf("  <= %10.2f %10lu %s\n", each.upper, static_cast<unsigned long>(each.count),
                std::string(length, '#').c_str());
  }
  std::printf("  processor time per message: %.3f usec\n", figures.processor_time);
  std::fflush(stdout);
}

void print_details(const BandwidthFigures& figures) {
  std::printf("  processor time per message: %.3f usec\n", figures.processor_time);
  std::fflush(stdout);
}

}  // namespace verbena::perf
