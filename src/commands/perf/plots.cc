// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/plots.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <stdexcept>

#include <unistd.h>

#include "base/format.h"
#include "commands/perf/output_file.h"
#include "commands/perf/svg_chart.h"
#include "commands/perf/text_chart.h"

namespace verbena::perf {
namespace {

using nlohmann::ordered_json;

// A setting that a sweep varies. The first that varies is the horizontal axis.
struct Setting {
  const char* field;
  const char* label;
  Scale scale;
  const char* in_legend;  // format of its value
};
constexpr std::array kSettings{
    Setting{"bytes", "message size", Scale::kBytes, "{} B"},
    Setting{"send_depth", "messages under way per queue pair", Scale::kPowers, "depth {}"},
    Setting{"queue_pairs", "queue pairs", Scale::kPowers, "{} QP"},
};

bool varies(const ordered_json& rows, const char* field) {
  std::set<std::uint64_t> values;
  for (const ordered_json& row : rows) {
    if (row.contains(field)) values.insert(row.at(field).get<std::uint64_t>());
  }
  return values.size() > 1;
}

// Names a row by the settings that vary besides that of the axis.
std::string name_of_row(const ordered_json& rows, const ordered_json& row, const Setting& axis) {
  std::string name;
  for (const Setting& each : kSettings) {
    if (each.field == axis.field || !varies(rows, each.field)) continue;
    name += (name.empty() ? "" : ", ") +
            verbena::vformat(each.in_legend,
                             fmt::make_format_args(row.at(each.field).get_ref<const std::uint64_t&>()));
  }
  return name;
}

// Returns a line for each combination of the other settings.
std::vector<Series> lines_of(const ordered_json& rows, const Setting& axis, const char* figure,
                             const std::string& usual_name) {
  std::vector<Series> lines;
  for (const ordered_json& row : rows) {
    std::string name = name_of_row(rows, row, axis);
    if (name.empty()) name = usual_name;
    auto found = std::ranges::find(lines, name, &Series::name);
    if (found == lines.end()) found = lines.insert(lines.end(), {name, {}});
    found->points.push_back({figure_of(row, axis.field), figure_of(row, figure)});
  }
  return lines;
}

std::string title_of(const ordered_json& report) {
  return report.at("test").get<std::string>() + " over " + report.at("connection").get<std::string>();
}

std::vector<Chart> latency_charts(const ordered_json& report) {
  const ordered_json& rows = report.at("results");
  const Axis y{"latency [" + rows.front().at("unit").get<std::string>() + "]", Scale::kLog};
  if (!varies(rows, "bytes")) {
    const auto size = rows.front().at("bytes").get<std::uint64_t>();
    return {{title_of(report),
             {"part of the messages that take at most this time", Scale::kNines},
             y,
             {distribution_of(rows.front(), verbena::format("{} bytes", size))}}};
  }
  Chart chart{title_of(report), {kSettings[0].label, kSettings[0].scale}, y, {}};
  for (const char* each : {"p50", "p90", "p99", "p99.9"})
    chart.series.push_back(lines_of(rows, kSettings[0], each, each).front());
  return {chart};
}

std::vector<Chart> bandwidth_charts(const ordered_json& report) {
  const ordered_json& rows = report.at("results");
  const auto axis =
      std::ranges::find_if(kSettings, [&](const Setting& each) { return varies(rows, each.field); });
  if (axis == kSettings.end()) return {};
  const std::string unit = rows.front().at("unit").get<std::string>();
  const Axis x{axis->label, axis->scale};
  return {{title_of(report),
           x,
           {"bandwidth [" + unit + "]", Scale::kLinear},
           lines_of(rows, *axis, "average", "average")},
          {title_of(report),
           x,
           {"message rate [million/s]", Scale::kLinear},
           lines_of(rows, *axis, "million_messages_per_second", "average")}};
}

}  // namespace

double figure_of(const ordered_json& row, const char* field) {
  const ordered_json& value = row.at(field);
  return value.is_null() ? 0 : value.get<double>();
}

Series distribution_of(const ordered_json& row, std::string name) {
  Series series{std::move(name), {}};
  std::uint64_t count = 0, seen = 0;
  for (const ordered_json& each : row.at("histogram")) count += each.at(1).get<std::uint64_t>();
  for (const ordered_json& each : row.at("histogram")) {
    // The slowest messages are at the part that one more message would need.
    seen += each.at(1).get<std::uint64_t>();
    const double part = static_cast<double>(seen) / (static_cast<double>(count) + 1);
    series.points.push_back({part, each.at(0).get<double>()});
  }
  return series;
}

std::vector<Chart> charts_of(const ordered_json& report) {
  const ordered_json& rows = report.at("results");
  if (rows.empty()) return {};
  return rows.front().contains("histogram") ? latency_charts(report) : bandwidth_charts(report);
}

void plot(const ordered_json& report, const Parameters& parameters) {
  const std::vector<Chart> charts = charts_of(report);
  if (charts.empty())
    throw std::runtime_error(
        "--plot: nothing varies that could be drawn; bandwidth tests need -a or --sweep");
  if (parameters.plot_file.empty()) {
    for (const Chart& each : charts)
      std::fputs(text_chart(each, ::isatty(STDOUT_FILENO) != 0).c_str(), stdout);
    return;
  }
  write_file("--plot", parameters.plot_file, svg_file(charts));
}

}  // namespace verbena::perf
