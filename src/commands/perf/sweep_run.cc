// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/sweep_run.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "commands/perf/details.h"
#include "commands/perf/device.h"
#include "commands/perf/director.h"
#include "commands/perf/json_report.h"
#include "commands/perf/plots.h"

namespace verbena::perf {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxPoints = 10000;

template <class T>
std::vector<std::uint64_t> values_or(const std::vector<std::uint64_t>& values, T usual) {
  return values.empty() ? std::vector<std::uint64_t>{usual} : values;
}

Parameters point(const Parameters& base, std::uint64_t size, std::uint64_t depth, std::uint64_t pairs) {
  Parameters made = base;
  made.sweep.reset();
  made.is_quiet = true;
  made.plots = false;
  made.shows_details = true;
  made.size = size;
  made.has_size = true;
  made.queue_pairs = static_cast<std::uint32_t>(pairs);
  made.send_depth = static_cast<std::uint32_t>(depth);
  if (made.is(Verb::kSend)) made.receive_depth = std::max(made.receive_depth, made.send_depth);
  made.settle();
  return made;
}

void print_heading(const Parameters& parameters) {
  if (parameters.is_latency()) {
    const char* const unit = parameters.in_cycles ? "cycles" : "usec";
    std::printf(" #bytes        t_avg[%s]       p50[%s]       p99[%s]     p99.9[%s]\n", unit, unit, unit,
                unit);
    return;
  }
  const char* const unit = parameters.unit == Unit::kMebibytes ? "MB" : "Gb";
  std::printf(" #bytes       #qps   depth    BW average[%s/sec]   MsgRate[Mpps]\n", unit);
}

void print_row(const Parameters& parameters, const ordered_json& row) {
  const auto figure = [&](const char* name) { return figure_of(row, name); };
  const auto size = row.at("bytes").get<unsigned long>();
  if (parameters.is_latency()) {
    std::printf(" %-9lu %14.2f %15.2f %15.2f %15.2f\n", size, figure("average"), figure("p50"), figure("p99"),
                figure("p99.9"));
  } else {
    std::printf(" %-9lu %7u %7u %20.2f %15.6f\n", size, parameters.queue_pairs, parameters.send_depth,
                figure("average"), figure("million_messages_per_second"));
  }
  std::fflush(stdout);
}

// Runs the points, and puts their rows into one report. Returns whether all figures are within the limits.
bool run_points(Director& director, const std::vector<Parameters>& points, ordered_json& report) {
  bool is_good = true;
  ordered_json rows = ordered_json::array();
  for (const Parameters& each : points) {
    Director::Both both = director.run(each);
    is_good &= both.own.is_good;
    if (report.is_null()) report = both.own.report;
    // With --reversed, only the server has figures of a one-sided test.
    const bool has_own = !both.own.report.at("results").empty();
    ordered_json row =
        has_own ? both.own.report["results"].front() : ordered_json(both.peer.at("results").at(0));
    row["queue_pairs"] = each.queue_pairs;
    row["send_depth"] = each.send_depth;
    if (!each.json) print_row(each, row);
    rows.push_back(std::move(row));
  }
  report["results"] = std::move(rows);
  return is_good;
}

}  // namespace

std::vector<Parameters> points_of(const Parameters& parameters, std::uint32_t mtu) {
  const Sweep& sweep = *parameters.sweep;
  std::vector<std::uint64_t> sizes = values_or(sweep.sizes, parameters.size);
  if (parameters.is_datagram() && sweep.has_all_sizes)
    std::erase_if(sizes, [&](std::uint64_t each) { return each > mtu; });
  if (parameters.is_datagram() && std::ranges::max(sizes) > mtu)
    throw std::invalid_argument(
        verbena::format("--sweep: a datagram has at most {} bytes, the path MTU", mtu));
  const auto depths = values_or(sweep.depths, parameters.send_depth);
  const auto pairs = values_or(sweep.queue_pairs, parameters.queue_pairs);
  if (sizes.size() * depths.size() * pairs.size() > kMaxPoints)
    throw std::invalid_argument(verbena::format("--sweep: more than {} combinations", kMaxPoints));
  if (!parameters.is_timed() && !sweep.depths.empty() && std::ranges::max(depths) > parameters.iterations)
    throw std::invalid_argument("--sweep: a depth is larger than the number of messages (-n)");
  std::vector<Parameters> points;
  for (const std::uint64_t count : pairs) {
    for (const std::uint64_t depth : depths) {
      for (const std::uint64_t size : sizes) points.push_back(point(parameters, size, depth, count));
    }
  }
  return points;
}

int run_sweep(const Parameters& parameters) {
  const Device device(parameters);
  Director director(connect_by_tcp(parameters), "--sweep");
  const auto mtu = std::min(bytes_of(device.mtu(parameters)), director.peer_mtu());
  const std::vector<Parameters> points = points_of(parameters, mtu);
  if (!parameters.json) print_heading(parameters);
  ordered_json report;
  const bool is_good = run_points(director, points, report);
  director.end();
  for (const char* each : {"queue_pairs", "send_depth"}) report.erase(each);  // each row has its own
  report["sweep"] = true;
  if (parameters.json) print_json(report);
  if (parameters.plots) plot(report, parameters);
  return is_good ? 0 : 1;
}

}  // namespace verbena::perf
