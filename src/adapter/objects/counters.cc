// SPDX-License-Identifier: Apache-2.0

#include "adapter/objects/flow_specs.h"
#include "adapter/objects/software_context.h"
#include "base/failed_call.h"

namespace verbena::adapter {

Result<ibv_counters*> SoftwareContext::create_counters(const ibv_counters_init_attr* attr) {
  if (device_->is_gone()) return fail(EIO);
  if (attr->comp_mask != 0) return fail(EOPNOTSUPP);
  auto counters = std::make_unique<Counters>(*device_);
  return counters_.add(std::move(counters));
}

int SoftwareContext::destroy_counters(ibv_counters* abi_counters) {
  Counters& counters = Counters::of(abi_counters);
  if (counters.users.load() != 0) return because(EBUSY, "{} flows use it", uint32_t{counters.users.load()});
  counters_.destroy(counters);
  return 0;
}

// Counters are attached before the flow that names them is created (IBV_FLOW_SPEC_ACTION_COUNT). As with
// mlx5, they cannot be attached to an existing flow.
int SoftwareContext::attach_counters(ibv_counters* abi_counters, const ibv_counter_attach_attr* attr,
                                     ibv_flow* flow) {
  if (flow != nullptr || attr->comp_mask != 0) return EOPNOTSUPP;
  if (number_in(attr->counter_desc) > IBV_COUNTER_BYTES) return EOPNOTSUPP;
  Counters& counters = Counters::of(abi_counters);
  const std::lock_guard attaching(counters.attaching);
  if (counters.users.load() != 0)
    return because(EBUSY, "{} flows use it already", uint32_t{counters.users.load()});
  counters.points.push_back({attr->counter_desc, attr->index});
  return 0;
}

int SoftwareContext::read_counters(ibv_counters* abi_counters, uint64_t* values, uint32_t count,
                                   uint32_t flags) {
  if ((flags & ~uint32_t{IBV_READ_COUNTERS_ATTR_PREFER_CACHED}) != 0)
    return because(EINVAL, "flags {:#x} have bits that are unknown here", flags);
  Counters& counters = Counters::of(abi_counters);
  const std::lock_guard attaching(counters.attaching);
  for (const Counters::Point& point : counters.points) {
    if (point.index >= count)
      return because(EINVAL, "ncounters {} is too small for the attached index {}", count, point.index);
  }
  for (uint32_t i = 0; i < count; ++i) values[i] = 0;
  for (const Counters::Point& point : counters.points) {
    const auto& total = point.what == IBV_COUNTER_PACKETS ? counters.totals.packets : counters.totals.bytes;
    values[point.index] += total.load(std::memory_order_relaxed);
  }
  return 0;
}

}  // namespace verbena::adapter
