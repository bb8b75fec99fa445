// SPDX-License-Identifier: Apache-2.0
#include "adapter/queues/shared_receive_queue.h"

#include <algorithm>
#include <mutex>

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

namespace {

// A handle has the place in its low bits, and above them how often the place has been used.
constexpr uint32_t kPlaceBits = 16;
constexpr uint32_t kPlaces = 1u << kPlaceBits;

}  // namespace

Result<std::unique_ptr<TagList>> TagList::create(uint32_t most) {
  if (most == 0 || most > kPlaces) return fail(EINVAL);
  auto entries = MappedArray::create(size_t{most} * sizeof(Entry));
  if (!entries) return tl::unexpected(entries.error());
  return std::unique_ptr<TagList>(new TagList(std::move(*entries), most));
}

uint32_t TagList::free_place() {
  if (first_free_ != kNone) {
    const uint32_t place = first_free_;
    first_free_ = at(place).next;
    return place;
  }
  return fresh_ < max_ ? fresh_++ : kNone;
}

Result<uint32_t> TagList::add(const Buffer& buffer) {
  const uint32_t place = free_place();
  if (place == kNone) return fail(ENOMEM);
  Entry& entry = at(place);
  entry.tag = buffer.tag;
  entry.mask = buffer.mask;
  entry.used = true;
  entry.waits = !is_synchronized();
  entry.receive.wqe.wr_id = buffer.wr_id;
  entry.receive.wqe.num_sge = static_cast<uint32_t>(buffer.list.size());
  std::copy(buffer.list.begin(), buffer.list.end(), entry.receive.list);
  entry.previous = last_;
  entry.next = kNone;
  (last_ == kNone ? first_ : at(last_).next) = place;
  last_ = place;
  return entry.generation << kPlaceBits | place;
}

bool TagList::remove(uint32_t handle) {
  const uint32_t place = handle % kPlaces;
  if (place >= fresh_) return false;
  const Entry& entry = at(place);
  if (!entry.used || (entry.generation << kPlaceBits | place) != handle) return false;
  unlink(place);
  return true;
}

void TagList::unlink(uint32_t place) {
  Entry& entry = at(place);
  (entry.previous == kNone ? first_ : at(entry.previous).next) = entry.next;
  (entry.next == kNone ? last_ : at(entry.next).previous) = entry.previous;
  entry.used = false;
  ++entry.generation;
  entry.next = first_free_;
  first_free_ = place;
}

uint32_t TagList::search(uint64_t tag) const {
  for (uint32_t place = first_; place != kNone; place = at(place).next) {
    const Entry& entry = at(place);
    if (!entry.waits && (tag & entry.mask) == entry.tag) return place;
  }
  return kNone;
}

bool TagList::take(uint64_t tag, HeldReceive& into) {
  const uint32_t place = search(tag);
  if (place == kNone) return false;
  const HeldReceive& receive = at(place).receive;
  into.wqe = receive.wqe;
  std::copy_n(receive.list, receive.wqe.num_sge, into.list);
  unlink(place);
  return true;
}

void TagList::synchronize(uint32_t handled) {
  handled_ = handled;
  if (!is_synchronized()) return;
  for (uint32_t place = first_; place != kNone; place = at(place).next) at(place).waits = false;
}

}  // namespace verbena::queues
