// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "agent/state_tree.h"
#include "control/admin.h"

namespace verbena::agent {

// Sums what processes publish of their QPs into counters of devices that only ever grow, also when QPs and
// processes go. What a QP counted after the last look at it is lost with it.
class CounterCollector {
 public:
  // Adds what the QPs of all lent slots have counted since the last call.
  void collect(const std::vector<control::SlotStatus>& slots);
  // By Link::device_index.
  const std::map<uint32_t, DeviceCounters>& devices() const { return devices_; }

 private:
  struct Seen {
    int64_t pid = 0;
    DeviceCounters counters{};
  };
  std::map<uint32_t, DeviceCounters> devices_;
  std::map<uint32_t, Seen> seen_;  // by QPN
};

}  // namespace verbena::agent
