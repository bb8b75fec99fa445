// SPDX-License-Identifier: Apache-2.0
#include "agent/status/counter_collector.h"

#include <algorithm>

#include "wire/roce/qpn.h"

namespace verbena::agent {

void CounterCollector::set_devices(const std::vector<uint32_t>& devices) {
  std::erase_if(devices_, [&](const auto& entry) { return !std::ranges::count(devices, entry.first); });
  for (const uint32_t device : devices) devices_[device];
}

void CounterCollector::collect(const LeasedSlot& slot, const control::QpsRead& read) {
  Seen& seen = seen_[slot.lease];
  for (size_t i = 0; i < read.qps.size(); ++i) {
    const control::QpNumbers& qp = read.qps[i];
    const uint32_t place = read.places[i];
    const auto sums = devices_.find(qp.device_index);
    if (sums == devices_.end() || qp.qpn != roce::Qpn::in_slot(slot.index, place).value()) continue;
    auto before = seen.find(place);
    if (before == seen.end()) {
      if (!room_.allows(slot.lessee.uid)) continue;
      room_.take(slot.lessee.uid);
      before = seen.emplace(place, Numbers{}).first;
    }
    for (size_t k = 0; k < qp.counters.size(); ++k) {
      const uint64_t counted = before->second[k];
      // A smaller value belongs to another QP with the same number.
      sums->second[k] += qp.counters[k] >= counted ? qp.counters[k] - counted : qp.counters[k];
    }
    before->second = qp.counters;
  }
}

void CounterCollector::forget(const LeasedSlot& slot) {
  const auto seen = seen_.find(slot.lease);
  if (seen == seen_.end()) return;
  room_.give_back(slot.lessee.uid, seen->second.size());
  seen_.erase(seen);
}

void CounterCollector::link_downed(uint32_t device_index) {
  const auto sums = devices_.find(device_index);
  if (sums != devices_.end()) ++sums->second.link_downed;
}

}  // namespace verbena::agent
