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
// Reads the resource use from the agent's /proc/PID/stat. Returns nullopt if that file is not readable here.
std::optional<AgentHealth> health_of(pid_t agent);

// The detail of metrics: for each process, or only totals over all processes, without names and PIDs.
// Unprivileged readers get kSums.
enum class MetricsDetail { kProcesses, kSums };

// Formats an agent's numbers as Prometheus text. Without a `status`, the text has only the metric
// verbena_agent_up, as 0. Without a `health`, the agent's CPU time and memory are left out.
std::string metrics_as_text(const std::optional<control::AgentStatus>& status,
                            const std::optional<AgentHealth>& health,
                            MetricsDetail detail = MetricsDetail::kProcesses);

// The same metrics in both details: `all` is kProcesses, `sums` is kSums.
struct MetricsTexts {
  std::string all, sums;
};

}  // namespace verbena::commands
