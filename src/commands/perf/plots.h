// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "commands/perf/chart.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Returns a figure of a row of a report, or 0 if it is null. A test without messages has figures that are not
// numbers. JSON has no form for them, so a peer sends null.
double figure_of(const nlohmann::ordered_json& row, const char* field);

// Returns the distribution of the latencies of a row, from its histogram. x is a part of all messages, from 0
// to 1. y is the latency that this part of the messages does not exceed.
Series distribution_of(const nlohmann::ordered_json& row, std::string name);

// Returns the charts of a report of --json. A latency test has one chart: four percentiles over the size, or
// the whole distribution if the size does not vary. A bandwidth test has two charts over the setting that
// varies: bandwidth and message rate. The result is empty if nothing varies in a bandwidth test, or if the
// report has no figures.
std::vector<Chart> charts_of(const nlohmann::ordered_json& report);

// Shows the charts as --plot asks for it: on standard output, or in a file. Throws std::runtime_error if
// there is nothing to draw or the file cannot be written.
void plot(const nlohmann::ordered_json& report, const Parameters& parameters);

}  // namespace verbena::perf
