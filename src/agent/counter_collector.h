// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "agent_client/admin.h"
#include "agent_client/device_counters.h"

namespace verbena::agent {

using agent_client::DeviceCounters;

// Sums what processes publish of their QPs into counters of devices that only ever grow, also when QPs and
// processes go.
class CounterCollector {
 public:
  // Adds what the QPs of a lent slot have counted since the last call. What a QP counted can be read until
  // its number is given to another, which is late: read_status_page() with QpChoice::kAll.
  void collect(const agent_client::SlotStatus& slot);
  // The same for the last time: the slot will be another's.
  void finish(const agent_client::SlotStatus& slot);
  void link_downed(uint32_t device_index) { ++devices_[device_index].link_downed; }
  // By Link::device_index.
  const std::map<uint32_t, DeviceCounters>& devices() const { return devices_; }

 private:
  struct Seen {
    int64_t pid = 0;
    std::array<uint64_t, transport::kQpCounterCount> counters{};
  };
  std::map<uint32_t, DeviceCounters> devices_;
  std::map<uint32_t, Seen> seen_;  // by QPN
};

}  // namespace verbena::agent
