// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent_client/agent_status.h"

namespace verbena::tools {

// What the agent's process takes of its machine.
struct AgentHealth {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0;
};
// Nothing where /proc does not show it.
std::optional<AgentHealth> health_of(pid_t agent);

// The numbers of an agent in the text format of Prometheus; without one, that there is none.
std::string metrics_as_text(const std::optional<agent_client::AgentStatus>& status,
                            const std::optional<AgentHealth>& health);

}  // namespace verbena::tools
