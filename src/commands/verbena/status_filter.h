// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

#include "control/model/agent_status.h"

namespace verbena::commands {

// The filters of `verbena status`. An object has to match one value of each filter that is not empty.
struct StatusFilter {
  std::vector<std::string> links{};
  std::vector<pid_t> pids{};
  std::vector<std::string> programs{};
  std::vector<uint32_t> qpns{};
  std::vector<std::string> states{};  // such as "RTS"

  bool wants_all() const { return links.empty() && !wants_processes(); }
  // Whether particular processes or queue pairs are asked for.
  bool wants_processes() const { return !pids.empty() || !programs.empty() || wants_queue_pairs(); }
  bool wants_queue_pairs() const { return !qpns.empty() || !states.empty(); }
};

// Returns the part of `status` that passes the filter. Host-wide counts, such as connections, are left out if
// particular processes are asked for.
control::AgentStatus only(control::AgentStatus status, const StatusFilter& filter);

}  // namespace verbena::commands
