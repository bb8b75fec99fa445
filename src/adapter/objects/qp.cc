// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/qp.h"

#include <string_view>

#include "adapter/objects/completion_queues.h"
#include "adapter/objects/limits.h"
#include "base/failed_call.h"

namespace verbena::adapter {

void QpCore::on_qp_event(ibv_event_type type) {
  const std::lock_guard guard(lock_);
  for (Qp* handle : handles_) handle->async_events.post(type, handle->owner.events());
}

bool QpCore::add(Qp& handle) {
  const std::lock_guard guard(lock_);
  if (ended_) return false;
  handles_.push_back(&handle);
  return true;
}

bool QpCore::remove(Qp& handle) {
  const std::lock_guard guard(lock_);
  std::erase(handles_, &handle);
  ended_ = handles_.empty();
  return ended_;
}

Qp::Qp(OpenDevice& device, engine::Shard& on, std::shared_ptr<QpCore> shared)
    : ExtendedQp{},
      TableEntry(device),
      shard(on),
      account(qp_base.mutex, qp_base.cond),
      async_events(kQpEvents, {.element = {.qp = abi()}, .event_type = {}}, &async_events_taken),
      core(std::move(shared)),
      transport(core->transport.get()),
      attributes(core->attributes),
      modifying(core->modifying) {}

int concerning_qp(const Qp& qp, int error) {
  if (error == 0 || log_level() < LogLevel::kError) return error;
  const auto link = qp.owner.link();
  return concerning(error, "QP {:#08x} of {} port {}", qp.transport->config().qpn.value(),
                    link != nullptr ? std::string_view(link->name) : "a device that is gone",
                    unsigned{kPorts});
}

void forget_completions(Qp& qp) {
  for (Cq* cq : {qp.send_cq, qp.recv_cq}) {
    if (cq != nullptr) cq->queue->remove_entries_of(qp.transport->config().qpn.value());
  }
}

}  // namespace verbena::adapter
