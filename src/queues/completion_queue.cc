// SPDX-License-Identifier: Apache-2.0
#include "queues/completion_queue.h"

#include <bit>
#include <mutex>

namespace verbena::queues {

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::create(uint32_t entries,
                                                                 CompletionListener* listener,
                                                                 RingMemory* memory) {
  const uint32_t slots = std::bit_ceil(entries + 1);
  auto ring = MappedArray::create(size_t{slots} * sizeof(ibv_wc), {memory, RingKind::kCompletion});
  if (!ring) return tl::unexpected(ring.error());
  return std::unique_ptr<CompletionQueue>(new CompletionQueue(std::move(*ring), slots, listener, memory));
}

void CompletionQueue::push(const ibv_wc& wc, bool solicited) {
  bool notify = false;
  bool overflow = false;
  {
    std::lock_guard guard(lock_);
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_relaxed) >= mask_ || overflowed_) {
      overflow = !overflowed_.exchange(true);
    } else {
      at(tail) = wc;
      tail_.store(tail + 1, std::memory_order_release);
      const bool counts = solicited || wc.status != IBV_WC_SUCCESS;
      notify = armed_ == Armed::kAny || (armed_ == Armed::kSolicited && counts);
      if (notify) armed_ = Armed::kNo;
    }
  }
  if (notify) listener_->on_completion_event();
  if (overflow) listener_->on_overflow();
}

int CompletionQueue::poll(int count, ibv_wc* out) {
  if (empty() && !overflowed_) return 0;
  std::lock_guard guard(lock_);
  uint32_t head = head_.load(std::memory_order_relaxed);
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  int taken = 0;
  while (taken < count && head != tail) out[taken++] = at(head++);
  head_.store(head, std::memory_order_relaxed);
  return taken == 0 && overflowed_ && count > 0 ? -1 : taken;
}

void CompletionQueue::arm(bool solicited_only) {
  std::lock_guard guard(lock_);
  if (!solicited_only) {
    armed_ = Armed::kAny;
  } else if (armed_ == Armed::kNo) {
    armed_ = Armed::kSolicited;
  }
}

Result<void> CompletionQueue::resize(uint32_t entries) {
  const uint32_t slots = std::bit_ceil(entries + 1);
  auto ring = MappedArray::create(size_t{slots} * sizeof(ibv_wc), {memory_, RingKind::kCompletion});
  if (!ring) return tl::unexpected(ring.error());
  std::lock_guard guard(lock_);
  const uint32_t head = head_.load(std::memory_order_relaxed);
  const uint32_t used = tail_.load(std::memory_order_relaxed) - head;
  if (used > entries) return fail(EINVAL);
  // Head and tail keep their values, so that empty() is right at any moment.
  auto* entries_of_new = reinterpret_cast<ibv_wc*>(ring->data());
  for (uint32_t i = head; i != head + used; ++i) entries_of_new[i & (slots - 1)] = at(i);
  std::swap(ring_, *ring);
  mask_ = slots - 1;
  return {};
}

void CompletionQueue::remove_entries_of(uint32_t qp_num) {
  std::lock_guard guard(lock_);
  const uint32_t head = head_.load(std::memory_order_relaxed);
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  uint32_t kept = head;
  for (uint32_t i = head; i != tail; ++i) {
    if (at(i).qp_num == qp_num) continue;
    if (kept != i) at(kept) = at(i);
    ++kept;
  }
  tail_.store(kept, std::memory_order_release);
}

}  // namespace verbena::queues
