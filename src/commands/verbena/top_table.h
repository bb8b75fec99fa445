// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "control/model/agent_status.h"

namespace verbena::commands {

enum class TopView : uint8_t { kProcesses, kQueuePairs, kLinks };
// The sort key of the rows; rows with the largest value come first.
enum class TopOrder : uint8_t { kBytes, kPackets, kRetransmissions, kRnrs, kWaiting, kCount };
std::string_view name_of(TopOrder order);

struct TopSettings {
  TopView view = TopView::kProcesses;
  TopOrder order = TopOrder::kBytes;
  bool reversed = false;
  std::string filter;  // show only rows with a name that contains this; empty for all rows
};

// Formats the table of `verbena top` from two statuses, `seconds` apart: a heading, then rows. Pure.
//
// Rates are differences of QP counters, per second. The counters of a QP that is new in `now` count from 0.
std::vector<std::string> top_lines(const control::AgentStatus& before, const control::AgentStatus& now,
                                   double seconds, const TopSettings& settings);

// Formats a number in at most five characters, with decimal units (k is 1000): "1.5G", "37k", "12".
std::string short_number(double number);

}  // namespace verbena::commands
