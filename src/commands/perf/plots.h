// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "commands/perf/chart.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Returns a figure of a row. A test without messages has figures that are no numbers, which become null on
// their way from a peer; zero is returned for null.
double figure_of(const nlohmann::ordered_json& row, const char* field);

// Returns the latencies of a row of a report that each part of the messages does not exceed.
Series distribution_of(const nlohmann::ordered_json& row, std::string name);

// Returns the charts of a report of --json: percentiles for latency, bandwidth and message rate over the
// value that varies. Empty if nothing varies in a bandwidth test, or if the report has no figures.
std::vector<Chart> charts_of(const nlohmann::ordered_json& report);

// Shows the charts as --plot asks for it: on standard output, or in a file. Throws std::runtime_error if
// there is nothing to draw or the file cannot be written.
void plot(const nlohmann::ordered_json& report, const Parameters& parameters);

}  // namespace verbena::perf
