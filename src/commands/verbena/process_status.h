// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "control/client/command_client.h"

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

}  // namespace verbena::commands
