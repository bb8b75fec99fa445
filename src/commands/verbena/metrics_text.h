// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "control/model/agent_status.h"

namespace verbena::commands {

// What the agent's process takes of its machine.
struct AgentHealth {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0;
};
// Nothing where /proc does not show it.
std::optional<AgentHealth> health_of(pid_t agent);

// Strangers learn nothing of a single process, its name and its number included: they see sums over all.
enum class MetricsDetail { kProcesses, kSums };

// The numbers of an agent in the text format of Prometheus; without one, that there is none.
std::string metrics_as_text(const std::optional<control::AgentStatus>& status,
                            const std::optional<AgentHealth>& health,
                            MetricsDetail detail = MetricsDetail::kProcesses);

// The same numbers for those who may see each process, and for those who may not.
struct MetricsTexts {
  std::string all, sums;
};

}  // namespace verbena::commands
