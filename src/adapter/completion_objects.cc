// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include "adapter/limits.h"
#include "adapter/software_context.h"

namespace verbena::adapter {
namespace {

// The C structs carry a pthread mutex and condition for the accounting of events.
class MutexGuard {
 public:
  explicit MutexGuard(pthread_mutex_t& mutex) : mutex_(mutex) { ::pthread_mutex_lock(&mutex_); }
  ~MutexGuard() { ::pthread_mutex_unlock(&mutex_); }
  MutexGuard(const MutexGuard&) = delete;
  MutexGuard& operator=(const MutexGuard&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& cond, uint32_t& completed, uint32_t count) {
  const MutexGuard guard(mutex);
  completed += count;
  ::pthread_cond_signal(&cond);
}

}  // namespace

// ---- channels

Result<ibv_comp_channel*> SoftwareContext::create_comp_channel() {
  auto events = queues::EventChannel::create();
  if (!events) return tl::unexpected(events.error());
  auto channel = std::make_unique<CompChannel>();
  channel->context = &abi().context;
  channel->fd = (*events)->fd();
  channel->refcnt = 0;
  channel->events = std::move(*events);
  return channel.release();
}

int SoftwareContext::destroy_comp_channel(ibv_comp_channel* channel) {
  if (CompChannel::of(channel).users.load() != 0) return EBUSY;
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
  acknowledge(cq->mutex, cq->cond, cq->comp_events_completed, count);
}

// ---- completion queues

void Cq::on_completion_event() {
  if (comp_channel != nullptr) comp_channel->events->post(*this);
}

void Cq::on_overflow() {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = abi();
  owner->events().post(event);
}

Result<ibv_cq*> SoftwareContext::create_cq(int cqe, void* cq_context, ibv_comp_channel* channel,
                                           int comp_vector) {
  if (cqe < 1 || cqe > kMaxCqe || comp_vector < 0 || comp_vector >= kCompletionVectors) return fail(EINVAL);
  if (cqs_.load() >= kMaxCq) return fail(ENOMEM);
  auto cq = std::make_unique<Cq>();
  auto queue = queues::CompletionQueue::create(static_cast<uint32_t>(cqe), cq.get());
  if (!queue) return tl::unexpected(queue.error());
  cq->queue = std::move(*queue);
  cq->owner = this;
  cq->context = &abi().context;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->cqe = static_cast<int>(cq->queue->capacity());
  ::pthread_mutex_init(&cq->mutex, nullptr);
  ::pthread_cond_init(&cq->cond, nullptr);
  if (channel != nullptr) {
    cq->comp_channel = &CompChannel::of(channel);
    ++cq->comp_channel->users;
    ++channel->refcnt;
  }
  ++cqs_;
  return cq.release()->abi();
}

int SoftwareContext::resize_cq(ibv_cq* cq, int cqe) {
  if (cqe < 1 || cqe > kMaxCqe) return EINVAL;
  Cq& object = Cq::of(cq);
  if (auto resized = object.queue->resize(static_cast<uint32_t>(cqe)); !resized) return resized.error().code;
  cq->cqe = static_cast<int>(object.queue->capacity());
  return 0;
}

int SoftwareContext::destroy_cq(ibv_cq* cq) {
  Cq& object = Cq::of(cq);
  if (object.users.load() != 0) return EBUSY;
  if (object.comp_channel != nullptr) object.comp_channel->events->withdraw(object);
  events_->forget(cq);
  {
    // Events that the application holds must come back first (ibv_get_cq_event(3)).
    const MutexGuard guard(cq->mutex);
    while (cq->comp_events_completed != object.comp_events_taken ||
           cq->async_events_completed != object.async_events_taken) {
      ::pthread_cond_wait(&cq->cond, &cq->mutex);
    }
  }
  if (object.comp_channel != nullptr) {
    --object.comp_channel->users;
    --object.comp_channel->refcnt;
  }
  ::pthread_cond_destroy(&cq->cond);
  ::pthread_mutex_destroy(&cq->mutex);
  --cqs_;
  delete &object;
  return 0;
}

// ---- asynchronous events

int SoftwareContext::get_async_event(ibv_async_event* event) {
  const auto taken = events_->take(event, [](const ibv_async_event& e) {
    if (e.event_type == IBV_EVENT_CQ_ERR) {
      ++Cq::of(e.element.cq).async_events_taken;
    } else if (object_of(e) != nullptr) {
      ++Qp::of(e.element.qp).async_events_taken;
    }
  });
  return taken ? 0 : taken.error().code;
}

void SoftwareContext::ack_async_event(ibv_async_event* event) {
  if (event->event_type == IBV_EVENT_CQ_ERR) {
    ibv_cq* cq = event->element.cq;
    acknowledge(cq->mutex, cq->cond, cq->async_events_completed, 1);
  } else if (object_of(*event) != nullptr) {
    ibv_qp* qp = event->element.qp;
    acknowledge(qp->mutex, qp->cond, qp->events_completed, 1);
  }
}

}  // namespace verbena::adapter
