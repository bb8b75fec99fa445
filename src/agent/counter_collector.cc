// SPDX-License-Identifier: Apache-2.0
#include "agent/counter_collector.h"

#include "roce/qpn.h"

namespace verbena::agent {

void CounterCollector::collect(const agent_client::SlotStatus& slot) {
  for (const agent_client::QpNumbers& qp : slot.qps) {
    const auto before = seen_.find(qp.qpn);
    const bool is_known = before != seen_.end() && before->second.pid == slot.pid;
    DeviceCounters& sums = devices_[qp.device_index];
    for (size_t i = 0; i < qp.counters.size(); ++i) {
      const uint64_t counted = is_known ? before->second.counters[i] : 0;
      // Less than before: another QP of the same number.
      sums[i] += qp.counters[i] >= counted ? qp.counters[i] - counted : qp.counters[i];
    }
    seen_[qp.qpn] = {slot.pid, qp.counters};
  }
}

void CounterCollector::finish(const agent_client::SlotStatus& slot) {
  collect(slot);
  seen_.erase(seen_.lower_bound(roce::Qpn::in_slot(slot.index, 0).value()),
              seen_.upper_bound(roce::Qpn::in_slot(slot.index, roce::Qpn::kPerSlot - 1).value()));
}

}  // namespace verbena::agent
