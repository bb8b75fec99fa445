// SPDX-License-Identifier: Apache-2.0
#include "agent/counter_collector.h"

namespace verbena::agent {

void CounterCollector::collect(const std::vector<control::SlotStatus>& slots) {
  std::map<uint32_t, Seen> seen;
  for (const control::SlotStatus& slot : slots) {
    for (const control::QpNumbers& qp : slot.qps) {
      const auto before = seen_.find(qp.qpn);
      const bool is_known = before != seen_.end() && before->second.pid == slot.pid;
      DeviceCounters& sums = devices_[qp.device_index];
      for (size_t i = 0; i < qp.counters.size(); ++i) {
        const uint64_t counted = is_known ? before->second.counters[i] : 0;
        // Less than before: another QP of the same number.
        sums[i] += qp.counters[i] >= counted ? qp.counters[i] - counted : qp.counters[i];
      }
      seen[qp.qpn] = {slot.pid, qp.counters};
    }
  }
  seen_ = std::move(seen);
}

}  // namespace verbena::agent
