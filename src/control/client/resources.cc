// SPDX-License-Identifier: Apache-2.0
#include "control/client/resources.h"

#include <algorithm>

namespace verbena::control {
namespace {

using protocol::ObjectKind;

uint64_t count_of_kind(const AgentStatus& status, const Link& link, ObjectKind kind) {
  uint64_t count = 0;
  for (const SlotStatus& slot : status.slots) {
    uint64_t listed = 0;
    for (const ObjectNumbers& object : slot.objects) {
      if (object.kind != kind) continue;
      ++listed;
      count += object.device_index == link.device_index ? 1 : 0;
    }
    const bool is_first = !slot.objects.empty() && slot.objects.front().device_index == link.device_index;
    const uint64_t all = slot.object_totals[static_cast<size_t>(kind)];
    if (is_first && listed >= protocol::kObjectsPerSlot / 2 && all > listed) count += all - listed;
  }
  return count;
}

}  // namespace

bool lists_objects(const AgentStatus& status, const SlotStatus& slot) {
  return std::ranges::any_of(status.slots, [&](const SlotStatus& other) {
    return other.lists_objects &&
           (other.index == slot.index || (slot.pid != 0 && other.pid == slot.pid && other.uid == slot.uid));
  });
}

bool is_of(const protocol::CmIdRecord& id, const Link& link) {
  return id.device_index == protocol::kNoDevice || id.device_index == link.device_index;
}

std::vector<uint32_t> qps_of_shared_receives(const AgentStatus& status, uint32_t srq) {
  std::vector<uint32_t> qps;
  for (const SlotStatus& slot : status.slots) {
    for (const QpNumbers& qp : slot.qps) {
      if (qp.details[protocol::kQpSharedReceives] == srq) qps.push_back(qp.qpn);
    }
  }
  return qps;
}

ResourceSummary summary_of(const AgentStatus& status, const Link& link) {
  ResourceSummary sum;
  sum.pd = count_of_kind(status, link, ObjectKind::kPd);
  sum.cq = count_of_kind(status, link, ObjectKind::kCq);
  sum.mr = count_of_kind(status, link, ObjectKind::kMr);
  sum.ctx = count_of_kind(status, link, ObjectKind::kContext);
  sum.srq = count_of_kind(status, link, ObjectKind::kSrq);
  for (const SlotStatus& slot : status.slots) {
    sum.qp +=
        static_cast<uint64_t>(std::ranges::count(slot.qps, link.device_index, &QpNumbers::device_index));
  }
  sum.cm_id = static_cast<uint64_t>(
      std::ranges::count_if(status.cm_ids, [&](const auto& id) { return is_of(id, link); }));
  return sum;
}

}  // namespace verbena::control
