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

// Sums the counters that processes publish for their QPs into device counters. Device counters never
// decrease, even when QPs and processes end.
//
// Ignores published counters of QPs outside the process's slot, and of unknown devices. Stores the latest
// values of each QP, to compute increases. A quota limits for how many QPs of a user values are stored;
// further QPs are not counted.
class CounterCollector {
 public:
  static constexpr Quota::Size kQps{.all = 512 * 1024, .reserve = 128 * 1024};

  explicit CounterCollector(uid_t own) : room_(kQps, own) {}

  // Sets the existing devices, by Link::device_index. Drops the counters of all others.
  void set_devices(const std::vector<uint32_t>& devices);
  // Adds to the device counters by how much the counters of the QPs in `read` have increased since they were
  // last read. The counters of a destroyed QP stay readable until its number is reused, which takes long.
  void collect(const LeasedSlot& slot, const control::QpsRead& read);
  // Drops the latest values of the slot's QPs. Called after the last reading of a slot whose lease has ended.
  void forget(const LeasedSlot& slot);
  void link_downed(uint32_t device_index);
  // Returns the counters by Link::device_index.
  const std::map<uint32_t, DeviceCounters>& devices() const { return devices_; }

 private:
  using Numbers = std::array<uint64_t, transport::kQpCounterCount>;
  using Seen = std::unordered_map<uint32_t, Numbers>;  // by the QP's index in the slot

  std::map<uint32_t, DeviceCounters> devices_;
  std::map<uint64_t, Seen> seen_;  // by LeasedSlot::lease
  Quota room_;
};

}  // namespace verbena::agent
