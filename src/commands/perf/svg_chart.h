// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "commands/perf/chart.h"

namespace verbena::perf {

// Returns the text with entities instead of the characters that XML and HTML reserve.
std::string escaped(std::string_view text);

// Returns the style sheet of charts, for light and for dark screens. A page with charts needs it once.
std::string chart_style();

// Returns a chart as an element of an HTML page with chart_style().
std::string svg_chart(const Chart& chart);

// Returns a file with all charts, one below the other, that needs nothing else.
std::string svg_file(const std::vector<Chart>& charts);

}  // namespace verbena::perf
