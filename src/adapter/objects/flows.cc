// SPDX-License-Identifier: Apache-2.0

#include "adapter/objects/flow_specs.h"
#include "adapter/objects/qp.h"
#include "adapter/objects/software_context.h"
#include "adapter/transport/raw.h"
#include "base/failed_call.h"

namespace verbena::adapter {

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
