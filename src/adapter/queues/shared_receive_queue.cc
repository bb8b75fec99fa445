// SPDX-License-Identifier: Apache-2.0
#include "adapter/queues/shared_receive_queue.h"

#include <algorithm>
#include <mutex>

#include "adapter/queues/tag_list.h"

namespace verbena::queues {

SharedReceiveQueue::SharedReceiveQueue(const Config& config, RecvQueue ring, std::unique_ptr<TagList> tags)
    : config_(config), ring_(std::move(ring)), capacity_(ring_.capacity()), tags_(std::move(tags)) {}

SharedReceiveQueue::~SharedReceiveQueue() = default;

Result<RecvQueue> SharedReceiveQueue::make_ring(const Config& config, uint32_t requests) {
  return RecvQueue::create(requests, config.sges * static_cast<uint32_t>(sizeof(ibv_sge)),
                           {config.memory, RingKind::kSharedReceive});
}

Result<std::unique_ptr<SharedReceiveQueue>> SharedReceiveQueue::create(const Config& config) {
  auto ring = make_ring(config, config.requests);
  if (!ring) return tl::unexpected(ring.error());
  std::unique_ptr<TagList> tags;
  if (config.tags > 0) {
    auto list = TagList::create(config.tags);
    if (!list) return tl::unexpected(list.error());
    tags = std::move(*list);
  }
  return std::unique_ptr<SharedReceiveQueue>(
      new SharedReceiveQueue(config, std::move(*ring), std::move(tags)));
}

bool SharedReceiveQueue::take(HeldReceive& into) {
  const std::lock_guard guard(taking_);
  if (ring_.empty()) return false;
  const RecvWqe& wqe = ring_.at(ring_.consumed());
  into.wqe = wqe;
  std::copy_n(wqe.sges().data(), wqe.num_sge, into.wqe.sge_space());
  ring_.consume();
  if (limit() != 0) look_at_limit();
  return true;
}

bool SharedReceiveQueue::any() {
  const std::lock_guard guard(taking_);
  return !ring_.empty();
}

void SharedReceiveQueue::arm(uint32_t limit) {
  const std::lock_guard guard(taking_);
  limit_.store(limit, std::memory_order_relaxed);
  if (limit != 0) look_at_limit();
}

// REQUIRES: taking_ is held
void SharedReceiveQueue::look_at_limit() {
  if (limit() == 0 || ring_.posted() - ring_.consumed() >= limit()) return;
  limit_.store(0, std::memory_order_relaxed);  // the event is raised once
  if (config_.listener != nullptr) config_.listener->on_limit_reached();
}

Result<void> SharedReceiveQueue::exchange(RecvQueue& ring) {
  const std::lock_guard guard(taking_);
  const uint32_t waiting = ring_.posted() - ring_.consumed();
  if (waiting > ring.capacity()) return fail(EINVAL);
  for (uint32_t i = 0; i < waiting; ++i) {
    const RecvWqe& from = ring_.at(ring_.consumed() + i);
    RecvWqe* to = ring.reserve(i);
    *to = from;
    std::copy_n(from.sges().data(), from.num_sge, to->sge_space());
  }
  ring.publish(waiting);
  ring_.replace(std::move(ring));
  capacity_.store(ring_.capacity(), std::memory_order_relaxed);
  return {};
}

}  // namespace verbena::queues
