// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "control/model/agent_status.h"

namespace verbena::commands {

enum class TopView : uint8_t { kProcesses, kQueuePairs, kLinks };
// What rows are sorted by: the largest first.
enum class TopOrder : uint8_t { kBytes, kPackets, kRetransmissions, kRnrs, kWaiting, kCount };
std::string_view name_of(TopOrder order);

struct TopSettings {
  TopView view = TopView::kProcesses;
  TopOrder order = TopOrder::kBytes;
  bool reversed = false;
  std::string filter;  // rows with this somewhere in a name; empty: all
};

// What `verbena top` shows of the time between two looks at an agent. Pure.
//
// Rates are of what a QP has counted meanwhile; one that is new counts from its beginning.
std::vector<std::string> top_lines(const control::AgentStatus& before, const control::AgentStatus& now,
                                   double seconds, const TopSettings& settings);

// "1.5G", "37k", "12": at most five characters.
std::string short_number(double number);

}  // namespace verbena::commands
