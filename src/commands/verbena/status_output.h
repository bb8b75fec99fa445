// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "control/client/command_client.h"
#include "control/model/agent_status.h"

namespace verbena::commands {

// The status of a process, which may have several slots: one for each shard. Port counters are summed over
// the slots; QPs and other objects are listed together.
struct ProcessStatus : control::SlotStatus {
  explicit ProcessStatus(const control::SlotStatus& first) : SlotStatus(first), slots{first.index} {}

  void add(const control::SlotStatus& another) {
    slots.push_back(another.index);
    has_wire |= another.has_wire;
    is_forwarded |= another.is_forwarded;
    for (size_t i = 0; i < port.size(); ++i) port[i] += another.port[i];
    qps.insert(qps.end(), another.qps.begin(), another.qps.end());
    objects.insert(objects.end(), another.objects.begin(), another.objects.end());
  }

  std::vector<uint32_t> slots;
};

// Returns the number of the process's completion queues that have overrun.
inline size_t overrun_cqs(const ProcessStatus& process) {
  return static_cast<size_t>(std::ranges::count_if(process.objects, [](const control::ObjectNumbers& one) {
    return one.kind == protocol::ObjectKind::kCq && one.values[protocol::kCqOverrun] != 0;
  }));
}

// Groups slots by process (PID and UID), in the order of each process's first slot. A slot without a known
// PID counts as a process of its own.
inline std::vector<ProcessStatus> processes_of(std::span<const control::SlotStatus> slots) {
  std::vector<ProcessStatus> processes;
  for (const control::SlotStatus& slot : slots) {
    const auto is_its = [&](const ProcessStatus& p) {
      return slot.pid != 0 && p.pid == slot.pid && p.uid == slot.uid;
    };
    const auto known = std::ranges::find_if(processes, is_its);
    if (known != processes.end()) {
      known->add(slot);
    } else {
      processes.emplace_back(slot);
    }
  }
  return processes;
}

// The filters of `verbena status`, one for each option. An object passes if it matches one value of each
// filter that is not empty. An empty filter accepts all objects.
struct StatusFilter {
  std::vector<std::string> links{};
  std::vector<pid_t> pids{};
  std::vector<std::string> programs{};
  std::vector<uint32_t> qpns{};
  std::vector<std::string> states{};  // such as "RTS"

  bool wants_all() const { return links.empty() && !wants_processes(); }
  // Whether the user asked for particular processes or queue pairs.
  bool wants_processes() const { return !pids.empty() || !programs.empty() || wants_queue_pairs(); }
  bool wants_queue_pairs() const { return !qpns.empty() || !states.empty(); }
};

// Returns the part of `status` that passes the filter. If any filter is set, leaves out the counts of
// connection management, which belong to no single link or process.
control::AgentStatus only(control::AgentStatus status, const StatusFilter& filter);

// Format the output of `verbena link show`, `verbena status` and `verbena status -v`, in this order. The text
// is for people and may change between versions; programs use the JSON form (status_as_json()).
std::string links_as_text(const control::AgentStatus& status);
std::string summary_as_text(const control::AgentStatus& status);
std::string status_as_text(const control::AgentStatus& status);

// Formats the output of `verbena status --json`: one JSON object. docs/using.md describes its members; later
// versions add members and remove none. Without a `status` (no agent runs), "agent" is null and the lists are
// empty. The text is always valid UTF-8.
std::string status_as_json(const std::optional<control::AgentStatus>& status);

// Formats the output of `verbena link show --json`: an array of links, with members as in status_as_json().
std::string links_as_json(const control::AgentStatus& status);

}  // namespace verbena::commands
