// SPDX-License-Identifier: Apache-2.0
#include "adapter/qp.h"

#include "adapter/completion_queues.h"

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
      owner(device),
      shard(on),
      account(qp_base.mutex, qp_base.cond),
      async_events(kQpEvents, {.element = {.qp = abi()}, .event_type = {}}, &async_events_taken),
      core(std::move(shared)),
      transport(core->transport.get()),
      attributes(core->attributes),
      modifying(core->modifying) {}

void forget_completions(Qp& qp) {
  const ibv_qp& abi_qp = *qp.abi();
  for (ibv_cq* cq : {abi_qp.send_cq, abi_qp.recv_cq}) {
    if (cq != nullptr) Cq::of(cq).queue->remove_entries_of(abi_qp.qp_num);
  }
}

}  // namespace verbena::adapter
