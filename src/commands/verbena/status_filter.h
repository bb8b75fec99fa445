// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

#include "control/model/agent_status.h"

namespace verbena::commands {

// What `verbena status` is asked for. Of each kind any will do; of the kinds all.
struct StatusFilter {
  std::vector<std::string> links{};
  std::vector<pid_t> pids{};
  std::vector<std::string> programs{};
  std::vector<uint32_t> qpns{};
  std::vector<std::string> states{};  // such as "RTS"

  bool wants_all() const { return links.empty() && !wants_processes(); }
  // Of particular processes or queue pairs only.
  bool wants_processes() const { return !pids.empty() || !programs.empty() || wants_queue_pairs(); }
  bool wants_queue_pairs() const { return !qpns.empty() || !states.empty(); }
};

// What is left of it. What is counted for the whole host, such as connections, is left out as soon as
// particular processes are asked for.
control::AgentStatus only(control::AgentStatus status, const StatusFilter& filter);

}  // namespace verbena::commands
