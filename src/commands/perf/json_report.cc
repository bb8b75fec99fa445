// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/json_report.h"

#include <chrono>
#include <cstdio>

#include "commands/perf/details.h"

namespace verbena::perf {

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
  std::puts(report.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

}  // namespace verbena::perf
