// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "control/model/admin_error.h"
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

// Returns the agent's status. An error means that no agent runs or that the agent does not answer. show_top()
// then shows the error's text.
using Look = std::function<control::AdminResult<control::AgentStatus>()>;

// Shows the agent's status on the terminal until the user quits. Updates it every `interval`, until the user
// chooses another interval. REQUIRES: standard input and output are a terminal
void show_top(const Look& look, TopSettings settings, Duration interval);

}  // namespace verbena::commands
