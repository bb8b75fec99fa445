// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/flow_specs.h"
#include "adapter/objects/qp.h"
#include "adapter/objects/software_context.h"
#include "adapter/transport/raw.h"
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

Result<ibv_flow*> SoftwareContext::create_flow(ibv_qp* abi_qp, const ibv_flow_attr* attr) {
  if (device_->is_gone()) return fail(EIO);
  Qp& qp = Qp::of(abi_qp);
  if (qp.init.qp_type == IBV_QPT_UD) return fail(EOPNOTSUPP);  // some adapters steer to UD QPs, too
  if (qp.raw == nullptr) return fail(because(EINVAL, "flows are for queue pairs of IBV_QPT_RAW_PACKET"));
  auto request = parse_flow(*attr);
  if (!request) return tl::unexpected(request.error());
  if (request->counters != nullptr && !device_->made(request->counters))
    return fail(because(EINVAL, "the counters are none of this ibv_context"));

  auto flow = std::make_unique<Flow>(*device_);
  flow->handle = device_->next_handle();
  flow->qp = &qp;
  engine::FlowTarget& target = flow->target;
  static_cast<ethernet::SteeringRule&>(target) = request->rule;
  target.receiver = request->drops ? nullptr : static_cast<transport::RawQueuePair*>(qp.transport);
  target.tag = request->tag;
  target.sniffs = request->sniffs;
  if (request->counters != nullptr) {
    flow->counters = &Counters::of(request->counters);
    const std::lock_guard attaching(flow->counters->attaching);
    // Without a point, nobody could read the counts.
    if (flow->counters->points.empty())
      return fail(because(EINVAL, "the counters have no counter attached (ibv_attach_counters_point_flow)"));
    ++flow->counters->users;
    target.totals = &flow->counters->totals;
  }
  if (auto added = qp.shard.exclusively([&] { return qp.raw->link->add(target); }); !added) {
    if (flow->counters != nullptr) --flow->counters->users;
    return tl::unexpected(added.error());
  }
  ++qp.raw->flows;
  return flows_.add(std::move(flow));
}

void Flow::retire() {
  qp->shard.exclusively([&] { qp->raw->link->remove(target); });
  if (counters != nullptr) --counters->users;
  --qp->raw->flows;
}

int SoftwareContext::destroy_flow(ibv_flow* abi_flow) {
  Flow& flow = Flow::of(abi_flow);
  flow.retire();
  flows_.destroy(flow);
  return 0;
}

}  // namespace verbena::adapter
