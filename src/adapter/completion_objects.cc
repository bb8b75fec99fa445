// SPDX-License-Identifier: Apache-2.0
#include "adapter/limits.h"
#include "adapter/software_context.h"

namespace verbena::adapter {

// ---- channels

Result<ibv_comp_channel*> SoftwareContext::create_comp_channel() {
  auto events = queues::EventChannel::create();
  if (!events) return tl::unexpected(events.error());
  auto channel = std::make_unique<CompChannel>();
  channel->context = &abi().context;
  channel->fd = (*events)->fd();
  channel->refcnt = 0;
  channel->events = std::move(*events);
  const std::lock_guard guard(objects_mutex_);
  channels_.push_back(*channel);
  return channel.release();
}

int SoftwareContext::destroy_comp_channel(ibv_comp_channel* channel) {
  const std::lock_guard guard(objects_mutex_);
  if (channel->refcnt != 0) return EBUSY;
  delete &CompChannel::of(channel);
  return 0;
}

int SoftwareContext::get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  const auto taken = CompChannel::of(channel).events->take([&](queues::EventSource& source) {
    Cq& found = Cq::of(source);
    ++found.comp_events_taken;
    *cq = found.abi();
    *cq_context = found.cq_context;
  });
  return taken ? 0 : taken.error().code;
}

void SoftwareContext::ack_cq_events(ibv_cq* cq, unsigned count) {
  Cq::of(cq).account.acknowledge(cq->comp_events_completed, count);
}

// ---- completion queues

Cq::Cq(SoftwareContext& maker)
    : ibv_cq_ex{},
      owner(maker),
      account(mutex, cond),
      async_events(kCqEvents, {.element = {.cq = abi()}, .event_type = {}}, &async_events_taken) {}

void Cq::on_completion_event() {
  if (comp_channel != nullptr) comp_channel->events->post(*this);
}

void Cq::on_overflow() {
  async_events.post(IBV_EVENT_CQ_ERR, owner.events());
}

Result<ibv_cq*> SoftwareContext::create_cq(int cqe, void* cq_context, ibv_comp_channel* channel,
                                           int comp_vector) {
  if (cqe < 1 || cqe > kMaxCqe || comp_vector < 0 || comp_vector >= kCompletionVectors) return fail(EINVAL);
  if (channel != nullptr && channel->context != &abi().context) return fail(EINVAL);
  auto cq = std::make_unique<Cq>(*this);
  auto queue = queues::CompletionQueue::create(static_cast<uint32_t>(cqe), cq.get());
  if (!queue) return tl::unexpected(queue.error());
  cq->queue = std::move(*queue);
  cq->context = &abi().context;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->handle = next_handle();
  cq->cqe = static_cast<int>(cq->queue->capacity());
  const std::lock_guard guard(objects_mutex_);
  if (cq_count_ >= kMaxCq) return fail(ENOMEM);
  ++cq_count_;
  if (channel != nullptr) {
    cq->comp_channel = &CompChannel::of(channel);
    ++channel->refcnt;
  }
  cqs_.push_back(*cq);
  return cq.release()->abi();
}

int SoftwareContext::resize_cq(ibv_cq* cq, int cqe) {
  if (cqe < 1 || cqe > kMaxCqe) return EINVAL;
  Cq& object = Cq::of(cq);
  if (auto resized = object.queue->resize(static_cast<uint32_t>(cqe)); !resized) return resized.error().code;
  cq->cqe = static_cast<int>(object.queue->capacity());
  return 0;
}

int SoftwareContext::destroy_cq(ibv_cq* abi_cq) {
  Cq& cq = Cq::of(abi_cq);
  if (cq.users.load() != 0) return EBUSY;
  withdraw_events(cq);
  // Events that the application holds must come back first (ibv_get_cq_event(3)).
  cq.account.await(cq.comp_events_completed, cq.comp_events_taken);
  cq.account.await(cq.async_events_completed, cq.async_events_taken);
  const std::lock_guard guard(objects_mutex_);
  if (abi_cq->channel != nullptr) --abi_cq->channel->refcnt;
  --cq_count_;
  delete &cq;
  return 0;
}

void SoftwareContext::withdraw_events(Cq& cq) {
  if (engine_->inherited()) return;  // the counts in the descriptors are our parent's
  if (cq.comp_channel != nullptr) cq.comp_channel->events->withdraw(cq);
  cq.async_events.withdraw(events());
}

// ---- asynchronous events

int SoftwareContext::get_async_event(ibv_async_event* event) {
  const auto taken = events_->take([&](queues::EventSource& source) {
    const AsyncEvent& found = AsyncEvent::of(source);
    if (found.taken != nullptr) ++*found.taken;
    *event = found.event;
  });
  return taken ? 0 : taken.error().code;
}

void SoftwareContext::ack_async_event(ibv_async_event* event) {
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR: {
      ibv_cq* cq = event->element.cq;
      Cq::of(cq).account.acknowledge(cq->async_events_completed, 1);
      return;
    }
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED: {
      ibv_qp* qp = event->element.qp;
      Qp::of(qp).account.acknowledge(qp->events_completed, 1);
      return;
    }
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: {
      ibv_srq* srq = event->element.srq;
      Srq::of(srq).account.acknowledge(srq->events_completed, 1);
      return;
    }
    case IBV_EVENT_WQ_FATAL: {
      ibv_wq* wq = event->element.wq;
      Wq::of(wq).account.acknowledge(wq->events_completed, 1);
      return;
    }
    default:  // of the port: nothing waits for it
      return;
  }
}

}  // namespace verbena::adapter
