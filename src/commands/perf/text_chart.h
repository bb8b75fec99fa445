// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "commands/perf/chart.h"

namespace verbena::perf {

// Draws a chart with lines of Braille dots and a marker at each value, 76 columns wide. Draws the first
// kMaxSeries series; a line of text counts the others. `has_colours`: for a terminal that shows ANSI colours.
std::string text_chart(const Chart& chart, bool has_colours);

}  // namespace verbena::perf
