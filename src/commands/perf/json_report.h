// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "commands/perf/device.h"
#include "commands/perf/exchange.h"
#include "commands/perf/figures.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// The report of --json: one object, which is printed at the end of a good test.
class JsonReport {
 public:
  explicit JsonReport(const Parameters& parameters) : parameters_(parameters) {}

  void begin(const Device& device, ibv_mtu mtu, const Keys& peer);
  void add(const LatencyFigures& figures);
  void add(const BandwidthFigures& figures);
  void print() const;

 private:
  const Parameters& parameters_;
  nlohmann::ordered_json object_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
};

}  // namespace verbena::perf
