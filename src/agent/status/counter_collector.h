// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include <sys/types.h>

#include "agent/slots/slot_table.h"
#include "base/quota.h"
#include "control/model/device_counters.h"
#include "control/model/status_reader.h"

namespace verbena::agent {

using control::DeviceCounters;

// Sums what processes publish of their QPs into counters of devices that only ever grow, also when QPs and
// processes go.
//
// What a process publishes counts for QPs of its own slot, on devices that there are; what it says beside is
// left out. For each QP its last numbers are kept here; each user gets a share of the room for that, and QPs
// beyond it are not counted.
class CounterCollector {
 public:
  static constexpr Quota::Size kQps{.all = 512 * 1024, .reserve = 128 * 1024};

  explicit CounterCollector(uid_t own) : room_(kQps, own) {}

  // Those that there are, by Link::device_index. What was counted of others is forgotten.
  void set_devices(const std::vector<uint32_t>& devices);
  // Adds what some QPs of a slot have counted since the last call. What a QP counted can be read until its
  // number is given to another, which is late.
  void collect(const LeasedSlot& slot, const control::QpsRead& read);
  // The slot was looked at for the last time: it will be another's.
  void forget(const LeasedSlot& slot);
  void link_downed(uint32_t device_index);
  // By Link::device_index.
  const std::map<uint32_t, DeviceCounters>& devices() const { return devices_; }

 private:
  using Numbers = std::array<uint64_t, transport::kQpCounterCount>;
  using Seen = std::unordered_map<uint32_t, Numbers>;  // by place in the slot

  std::map<uint32_t, DeviceCounters> devices_;
  std::map<uint64_t, Seen> seen_;  // by LeasedSlot::lending
  Quota room_;
};

}  // namespace verbena::agent
