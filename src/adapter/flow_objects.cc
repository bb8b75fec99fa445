// SPDX-License-Identifier: Apache-2.0
// Flow rules and what they count.
#include "adapter/flow_specs.h"
#include "adapter/software_context.h"

namespace verbena::adapter {

Result<ibv_flow*> SoftwareContext::create_flow(ibv_qp* abi_qp, const ibv_flow_attr* attr) {
  if (is_gone()) return fail(EIO);
  if (is_gone()) return fail(EIO);
  if (abi_qp->qp_type == IBV_QPT_UD) return fail(EOPNOTSUPP);  // some adapters steer to those, too
  if (abi_qp->qp_type != IBV_QPT_RAW_PACKET) return fail(EINVAL);
  auto request = parse_flow(*attr);
  if (!request) return tl::unexpected(request.error());
  if (request->counters != nullptr && request->counters->context != &abi().context) return fail(EINVAL);

  Qp& qp = Qp::of(abi_qp);
  auto flow = std::make_unique<Flow>();
  flow->context = &abi().context;
  flow->handle = next_handle();
  flow->qp = &qp;
  engine::FlowTarget& target = flow->target;
  static_cast<ethernet::SteeringRule&>(target) = request->rule;
  target.receiver = request->drops ? nullptr : static_cast<transport::RawQueuePair*>(qp.transport);
  target.tag = request->tag;
  target.sniffs = request->sniffs;
  if (request->counters != nullptr) {
    flow->counters = &Counters::of(request->counters);
    const std::lock_guard attaching(flow->counters->attaching);
    // One without points counts what nobody can ask for.
    if (flow->counters->points.empty()) return fail(EINVAL);
    ++flow->counters->users;
    target.totals = &flow->counters->totals;
  }
  if (auto added = shard().exclusively([&] { return qp.raw->link->add(target); }); !added) {
    if (flow->counters != nullptr) --flow->counters->users;
    return tl::unexpected(added.error());
  }
  ++qp.raw->flows;
  const std::lock_guard guard(objects_mutex_);
  flows_.push_back(*flow);
  return flow.release();
}

void SoftwareContext::uproot(Flow& flow) {
  shard().exclusively([&] { flow.qp->raw->link->remove(flow.target); });
  if (flow.counters != nullptr) --flow.counters->users;
  --flow.qp->raw->flows;
}

int SoftwareContext::destroy_flow(ibv_flow* abi_flow) {
  Flow& flow = Flow::of(abi_flow);
  uproot(flow);
  const std::lock_guard guard(objects_mutex_);
  delete &flow;
  return 0;
}

// ---- counters

Result<ibv_counters*> SoftwareContext::create_counters(const ibv_counters_init_attr* attr) {
  if (is_gone()) return fail(EIO);
  if (is_gone()) return fail(EIO);
  if (attr->comp_mask != 0) return fail(EOPNOTSUPP);
  auto counters = std::make_unique<Counters>();
  counters->context = &abi().context;
  const std::lock_guard guard(objects_mutex_);
  counters_.push_back(*counters);
  return counters.release();
}

int SoftwareContext::destroy_counters(ibv_counters* abi_counters) {
  Counters& counters = Counters::of(abi_counters);
  if (counters.users.load() != 0) return EBUSY;
  const std::lock_guard guard(objects_mutex_);
  delete &counters;
  return 0;
}

// Before the flow is made, which then names them (IBV_FLOW_SPEC_ACTION_COUNT); as with mlx5 not to one that
// is there already.
int SoftwareContext::attach_counters(ibv_counters* abi_counters, const ibv_counter_attach_attr* attr,
                                     ibv_flow* flow) {
  if (flow != nullptr || attr->comp_mask != 0) return EOPNOTSUPP;
  if (number_in(attr->counter_desc) > IBV_COUNTER_BYTES) return EOPNOTSUPP;
  Counters& counters = Counters::of(abi_counters);
  const std::lock_guard attaching(counters.attaching);
  if (counters.users.load() != 0) return EBUSY;
  counters.points.push_back({attr->counter_desc, attr->index});
  return 0;
}

int SoftwareContext::read_counters(ibv_counters* abi_counters, uint64_t* values, uint32_t count,
                                   uint32_t flags) {
  if ((flags & ~uint32_t{IBV_READ_COUNTERS_ATTR_PREFER_CACHED}) != 0) return EINVAL;
  Counters& counters = Counters::of(abi_counters);
  const std::lock_guard attaching(counters.attaching);
  for (const Counters::Point& point : counters.points) {
    if (point.index >= count) return EINVAL;
  }
  for (uint32_t i = 0; i < count; ++i) values[i] = 0;
  for (const Counters::Point& point : counters.points) {
    const auto& total = point.what == IBV_COUNTER_PACKETS ? counters.totals.packets : counters.totals.bytes;
    values[point.index] += total.load(std::memory_order_relaxed);
  }
  return 0;
}

}  // namespace verbena::adapter
