// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/figures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace verbena::perf {
namespace {

// The slowest messages that do not count: perftest leaves out two.
constexpr std::size_t kTail = 2;
constexpr std::size_t kParts = 20;

double percentile(const std::vector<double>& sorted, std::size_t counted, double part) {
  const auto index = static_cast<std::size_t>(std::ceil(static_cast<double>(counted) * part));
  return sorted[std::min(index, sorted.size() - 1)];
}

// The averages of equal parts of the samples: how they differ shows how certain the average is.
std::vector<double> averages_of_parts(const std::vector<double>& samples) {
  std::vector<double> averages;
  for (std::size_t i = 0; i < kParts && samples.size() >= kParts; ++i) {
    const std::size_t first = samples.size() * i / kParts, last = samples.size() * (i + 1) / kParts;
    const double sum = std::accumulate(samples.begin() + static_cast<std::ptrdiff_t>(first),
                                       samples.begin() + static_cast<std::ptrdiff_t>(last), 0.0);
    averages.push_back(sum / static_cast<double>(last - first));
  }
  return averages;
}

struct Point {
  double x;
  double y;
};

double slope(const Point& a, const Point& b) {
  return (b.y - a.y) / (b.x - a.x);
}

}  // namespace

LatencyFigures latency_figures(const LatencyTimes& times, const Parameters& parameters, std::uint64_t size,
                               double ticks_per_microsecond) {
  const bool is_one_way = parameters.is(Verb::kSend) || parameters.is(Verb::kWrite);
  const double parts = is_one_way ? 2 : 1;
  LatencyFigures figures;
  figures.size = size;
  figures.iterations = parameters.is_timed() ? times.messages : parameters.iterations;
  const double unit = parameters.in_cycles ? parts : parts * ticks_per_microsecond;
  figures.unit = unit;
  figures.histogram = times.histogram;
  if (parameters.is_timed()) {
    const double time = static_cast<double>(times.ended - times.began) / ticks_per_microsecond;
    const auto count = static_cast<double>(times.messages);
    figures.average = time / parts / count;
    figures.per_second = count / time * 1e6;
    return figures;
  }

  const bool is_answered = !times.completed.empty();
  const std::size_t samples = is_answered ? times.completed.size() : times.posted.size() - 1;
  for (std::size_t i = 0; i < samples; ++i) {
    const std::uint64_t end = is_answered ? times.completed[i] : times.posted[i + 1];
    const std::uint64_t time = end - times.posted[i];
    figures.samples.push_back(static_cast<double>(time) / unit);
    figures.histogram.add(time);
  }
  figures.parts = averages_of_parts(figures.samples);
  figures.sorted = figures.samples;
  std::ranges::sort(figures.sorted);
  const std::vector<double>& sorted = figures.sorted;
  const std::size_t counted = sorted.size() - std::min(kTail, sorted.size() - 1);
  figures.least = sorted.front();
  figures.most = sorted[std::min(counted, sorted.size() - 1)];
  figures.typical =
      counted % 2 == 1 ? sorted[counted / 2] : (sorted[counted / 2] + sorted[counted / 2 - 1]) / 2;
  figures.average =
      std::accumulate(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(counted), 0.0) /
      static_cast<double>(counted);
  double squares = 0;
  for (std::size_t i = 0; i < counted; ++i)
    squares += (sorted[i] - figures.average) * (sorted[i] - figures.average);
  figures.deviation = std::sqrt(squares / static_cast<double>(counted));
  figures.percentile_99 = percentile(sorted, counted, 0.99);
  figures.percentile_999 = percentile(sorted, counted, 0.999);
  return figures;
}

// The least slope between a point (i, posted[i]) and a later one (j + 1, completed[j]). The best earlier
// point is the one where a tangent from the later point touches the upper hull of all earlier points.
double least_time_per_message(std::span<const std::uint64_t> posted,
                              std::span<const std::uint64_t> completed) {
  double least = std::numeric_limits<double>::infinity();
  std::vector<Point> hull;
  const double origin = posted.empty() ? 0 : static_cast<double>(posted.front());
  for (std::size_t i = 0; i < posted.size(); ++i) {
    const auto x = static_cast<double>(i);
    if (posted[i] != 0) {
      const Point next{x, static_cast<double>(posted[i]) - origin};
      while (hull.size() > 1 && slope(hull[hull.size() - 2], hull.back()) <= slope(hull.back(), next))
        hull.pop_back();
      hull.push_back(next);
    }
    if (completed[i] == 0 || hull.empty()) continue;
    const Point end{x + 1, static_cast<double>(completed[i]) - origin};
    // Along the hull the slopes to `end` first fall and then rise.
    std::size_t low = 0, high = hull.size() - 1;
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (slope(hull[middle], end) <= slope(hull[middle + 1], end)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    least = std::min(least, slope(hull[low], end));
  }
  return least;
}

namespace {

// The bandwidth of equal parts of a test, between completions. `per_tick`: that of one message per tick.
std::vector<double> rates_of_parts(const BandwidthTimes& times, double per_tick) {
  std::vector<double> rates;
  const std::size_t count = times.completed.size();
  const auto completions = count - static_cast<std::size_t>(std::ranges::count(times.completed, 0U));
  const std::size_t parts = std::min(kParts, completions / 2);
  std::uint64_t before = times.began;
  std::size_t first = 0;
  for (std::size_t i = 0; i < parts; ++i) {
    std::size_t last = count * (i + 1) / parts;
    while (last > first && times.completed[last - 1] == 0) --last;  // has no completion of its own
    if (last == first) return {};
    rates.push_back(static_cast<double>(last - first) * per_tick /
                    static_cast<double>(times.completed[last - 1] - before));
    before = times.completed[last - 1];
    first = last;
  }
  return rates;
}

}  // namespace

BandwidthFigures bandwidth_figures(const BandwidthTimes& times, const Parameters& parameters,
                                   std::uint64_t size, double ticks_per_microsecond) {
  const double unit = parameters.unit == Unit::kMebibytes ? kMebibyte : kGigabit;
  const double seconds = static_cast<double>(times.ended - times.began) / ticks_per_microsecond / 1e6;
  const auto count = static_cast<double>(times.messages);
  BandwidthFigures figures;
  figures.size = size;
  figures.iterations = times.messages;
  figures.average = static_cast<double>(size) * count / seconds / unit;
  figures.rate = count / seconds / 1e6;
  if (!times.posted.empty()) {
    const double each = least_time_per_message(times.posted, times.completed) / ticks_per_microsecond / 1e6;
    figures.peak = static_cast<double>(size) / each / unit;
    figures.parts = rates_of_parts(times, static_cast<double>(size) / unit * ticks_per_microsecond * 1e6);
  }
  return figures;
}

}  // namespace verbena::perf
