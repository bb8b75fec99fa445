// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "commands/perf/device.h"
#include "commands/perf/exchange.h"
#include "commands/perf/figures.h"
#include "commands/perf/parameters.h"
#include "commands/perf/raw_frame.h"

namespace verbena::perf {

// Returns a copy of a row of a peer's report, with only the fields that JsonReport::add() writes. Throws
// std::exception if a field has an impossible value. Figures must be null or from 0 to 1e18.
nlohmann::json checked_row(const nlohmann::json& row);

// Prints the report of --json. Writes characters other than ASCII as escape sequences, because texts of a
// peer may have control characters that change the terminal.
void print_json(const nlohmann::ordered_json& report);

// Collects the report of a test in the form of --json: one object. begin() writes the settings, add() adds a
// row of results, and whole() returns the object.
class JsonReport {
 public:
  explicit JsonReport(const Parameters& parameters) : parameters_(parameters) {}

  void begin(const Device& device, ibv_mtu mtu, const Keys& peer);
  // For raw Ethernet. `mtu`: in bytes.
  void begin(const Device& device, std::uint32_t mtu, const FrameFields& sent);
  void add(const LatencyFigures& figures);
  void add(const BandwidthFigures& figures);
  nlohmann::ordered_json whole() const;

 private:
  void add_settings(std::uint32_t mtu);

  const Parameters& parameters_;
  nlohmann::ordered_json object_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
};

}  // namespace verbena::perf
