// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "control/model/agent_status.h"

namespace verbena::commands {

// Resource use of the agent's process.
struct AgentHealth {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0;
};
// Reads /proc/PID/stat of the agent; nullopt if it is not visible.
std::optional<AgentHealth> health_of(pid_t agent);

// The detail of metrics. Unprivileged readers get kSums: totals over all processes, without names and pids.
enum class MetricsDetail { kProcesses, kSums };

// Formats an agent's numbers as Prometheus text. A null status gives verbena_agent_up 0 only.
std::string metrics_as_text(const std::optional<control::AgentStatus>& status,
                            const std::optional<AgentHealth>& health,
                            MetricsDetail detail = MetricsDetail::kProcesses);

// The same metrics with each process, and as sums only.
struct MetricsTexts {
  std::string all, sums;
};

}  // namespace verbena::commands
