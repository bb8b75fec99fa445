// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/json_report.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <stdexcept>

#include "base/format.h"
#include "commands/perf/chart.h"
#include "commands/perf/details.h"

namespace verbena::perf {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxParts = 64, kMaxBuckets = 4096;
constexpr std::array kUnits{"usec", "cycles", "MiB/s", "Gb/s"};
constexpr std::array kNumbers{"bytes",
                              "iterations",
                              "average",
                              "per_second",
                              "min",
                              "max",
                              "typical",
                              "stdev",
                              "processor_usec_per_message",
                              "peak",
                              "million_messages_per_second"};

void check(bool is_good, const char* field) {
  if (!is_good) throw std::runtime_error(verbena::format("the server's report has an impossible {}", field));
}
bool is_figure(const json& value) {
  return value.is_number() && value.get<double>() >= 0 && value.get<double>() <= kMaxFigure;
}
bool is_bucket(const json& value) {
  return value.is_array() && value.size() == 2 && is_figure(value[0]) && value[1].is_number_unsigned();
}

template <class IsGood>
void copy_list(const json& from, const char* field, std::size_t most, const IsGood& is_good, json& to) {
  const auto found = from.find(field);
  if (found == from.end()) return;
  check(found->is_array() && found->size() <= most && std::ranges::all_of(*found, is_good), field);
  to[field] = *found;
}
// A figure of no messages is null.
void copy_number(const json& from, const char* field, json& to) {
  const auto found = from.find(field);
  if (found == from.end()) return;
  check(found->is_null() || is_figure(*found), field);
  to[field] = *found;
}

}  // namespace

json checked_row(const json& row) {
  json checked = json::object();
  for (const char* const each : kNumbers) copy_number(row, each, checked);
  for (const Percentile& each : kPercentiles) copy_number(row, each.name, checked);
  const json& unit = row.at("unit");
  check(std::ranges::any_of(kUnits, [&](const char* each) { return unit == each; }), "unit");
  checked["unit"] = unit;
  copy_list(
      row, "parts", kMaxParts, [](const json& each) { return each.is_null() || is_figure(each); }, checked);
  copy_list(row, "histogram", kMaxBuckets, is_bucket, checked);
  return checked;
}

void JsonReport::begin(const Device& device, ibv_mtu mtu, const Keys& peer) {
  const Parameters& p = parameters_;
  object_ = {
      {"test", p.test.name},
      {"role", p.is_client() ? "client" : "server"},
      {"device", device.context.name()},
      {"gid", verbena::to_string(device.gid.gid)},
      {"peer_gid", verbena::to_string(peer.gid)},
  };
  add_settings(bytes_of(mtu));
}

void JsonReport::begin(const Device& device, std::uint32_t mtu, const FrameFields& sent) {
  object_ = {
      {"test", parameters_.test.name},         {"role", parameters_.is_client() ? "client" : "server"},
      {"device", device.context.name()},       {"mac", text_of(sent.source)},
      {"peer_mac", text_of(sent.destination)},
  };
  add_settings(mtu);
}

void JsonReport::add_settings(std::uint32_t mtu) {
  const Parameters& p = parameters_;
  object_["connection"] = name_of(p.transport);
  object_["mtu"] = mtu;
  object_["queue_pairs"] = p.queue_pairs;
  object_["send_depth"] = p.send_depth;
  object_["receive_depth"] = p.receive_depth;
  object_["moderation"] = p.moderation;
  object_["list_length"] = p.list_length;
  object_["receive_list_length"] = p.receive_list_length;
  object_["bidirectional"] = p.is_bidirectional;
  object_["events"] = p.sleeps;
  object_["duration"] = std::chrono::duration<double>(p.duration).count();
}

void JsonReport::add(const LatencyFigures& figures) {
  nlohmann::ordered_json row = {{"bytes", figures.size},
                                {"iterations", figures.iterations},
                                {"unit", parameters_.in_cycles ? "cycles" : "usec"},
                                {"average", figures.average}};
  if (parameters_.is_timed()) {
    row["per_second"] = figures.per_second;
  } else {
    row["min"] = figures.least;
    row["max"] = figures.sorted.back();
    row["typical"] = figures.typical;
    row["stdev"] = figures.deviation;
  }
  for (const Percentile& each : kPercentiles) row[each.name] = percentile(figures, each.part);
  row["processor_usec_per_message"] = figures.processor_time;
  row["parts"] = figures.parts;
  nlohmann::ordered_json buckets = nlohmann::ordered_json::array();
  figures.histogram.for_each([&](std::uint64_t, std::uint64_t upper, std::uint64_t count) {
    buckets.push_back({static_cast<double>(upper) / figures.unit, count});
  });
  row["histogram"] = std::move(buckets);
  results_.push_back(std::move(row));
}

void JsonReport::add(const BandwidthFigures& figures) {
  results_.push_back({{"bytes", figures.size},
                      {"iterations", figures.iterations},
                      {"unit", parameters_.unit == Unit::kMebibytes ? "MiB/s" : "Gb/s"},
                      {"peak", figures.peak},
                      {"average", figures.average},
                      {"million_messages_per_second", figures.rate},
                      {"processor_usec_per_message", figures.processor_time},
                      {"parts", figures.parts}});
}

nlohmann::ordered_json JsonReport::whole() const {
  nlohmann::ordered_json whole = object_;
  whole["results"] = results_;
  return whole;
}

void print_json(const nlohmann::ordered_json& report) {
  std::puts(report.dump(2, ' ', true, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

}  // namespace verbena::perf
