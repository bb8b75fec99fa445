// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "commands/perf/exchange.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// The outcome of a test. `report` has the form of --json. `is_good`: whether the figures are within the
// limits of -w and -y. `bandwidths`: the figures for each size; empty for a latency test.
struct Outcome {
  nlohmann::ordered_json report;
  bool is_good = true;
  std::vector<BandwidthFigures> bandwidths{};
};

// Runs a test with a peer, which may be perftest's program of the same name, and prints its tables unless the
// parameters are quiet. `has_versions`: the ends have exchanged their versions. Throws std::exception if the
// test cannot be done.
Outcome run_test(Parameters parameters, std::unique_ptr<Channel> channel, bool has_versions);

}  // namespace verbena::perf
