// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <infiniband/verbs.h>

#include "adapter/memory/region.h"
#include "adapter/queues/completion_queue.h"
#include "adapter/queues/work_queue.h"
#include "base/cache_line.h"
#include "base/result.h"
#include "base/spin_lock.h"

namespace verbena::queues {

// A receive request taken out of a shared queue, with room for its scatter list.
struct alignas(kCacheLine) HeldReceive {
  RecvWqe wqe;
  ibv_sge list[kMaxSge];
};
static_assert(offsetof(HeldReceive, list) == sizeof(RecvWqe));

// Notified when a shared receive queue has fewer requests than its limit. Called with the queue's lock for
// taking held.
class LimitListener {
 public:
  virtual ~LimitListener() = default;
  virtual void on_limit_reached() = 0;
};

class TagList;

// Receive requests that several QPs share (IBTA volume 1, 10.2.9).
//
// Thread-safe: QPs of several shards may take from it. Posting and taking have a lock each, so that neither
// waits for the other. (Tagged buffers are for one shard's lock holder.)
class SharedReceiveQueue {
 public:
  struct Config {
    uint32_t requests = 0;  // min capacity
    uint32_t sges = 1;      // max per request
    memory::PdId pd = 0;
    LimitListener* listener = nullptr;
    CompletionQueue* cq = nullptr;  // XRC, tag matching: where its receives complete; null: the QP's
    uint32_t number = 0;            // XRC: its number in packets
    uint64_t xrc_domain = 0;        // XRC: the domain whose QPs may deliver to it; 0: not for XRC
    uint32_t tags = 0;              // tag matching: max tagged buffers; 0: not for tag matching
    RingMemory* memory = nullptr;   // allocator of its ring; null: the system
  };
  ~SharedReceiveQueue();
  static Result<std::unique_ptr<SharedReceiveQueue>> create(const Config& config);

  memory::PdId pd() const { return config_.pd; }
  CompletionQueue* cq() const { return config_.cq; }
  uint32_t number() const { return config_.number; }
  uint64_t xrc_domain() const { return config_.xrc_domain; }
  uint32_t capacity() const { return capacity_.load(std::memory_order_relaxed); }
  uint32_t sges() const { return config_.sges; }

  // ---- posting

  SpinLock& lock() { return lock_; }
  // The ring, for posting. REQUIRES: lock() is held
  RecvQueue& ring() { return ring_; }

  // Makes a ring for exchange(), with room for at least `requests`.
  Result<RecvQueue> make_ring(uint32_t requests) const { return make_ring(config_, requests); }

  // The armed limit; 0 if none is armed.
  uint32_t limit() const { return limit_.load(std::memory_order_relaxed); }

  // ---- taking

  // Notifies the listener once when fewer than `limit` requests are left; at once if that is so already. 0
  // disarms the limit.
  void arm(uint32_t limit);

  // The tagged buffers; nullptr if the queue is not for tag matching.
  TagList* tags() { return tags_.get(); }

  // Moves the oldest request to `into`. Returns false if there is none.
  bool take(HeldReceive& into);
  // Whether there is a request. Another QP may take it first.
  bool any();

  // Replaces the queue's ring by `ring`, moves the posted requests to the new ring, and returns the old ring
  // in `ring`. REQUIRES: lock() is held, `ring` is empty and from make_ring(). Errors: EINVAL if the posted
  // requests do not fit.
  Result<void> exchange(RecvQueue& ring);

 private:
  SharedReceiveQueue(const Config& config, RecvQueue ring, std::unique_ptr<TagList> tags);
  static Result<RecvQueue> make_ring(const Config& config, uint32_t requests);
  void look_at_limit();

  const Config config_;
  alignas(kCacheLine) SpinLock lock_;
  alignas(kCacheLine) SpinLock taking_;  // after lock_, if both are held
  RecvQueue ring_;
  std::atomic<uint32_t> capacity_;  // of ring_
  const std::unique_ptr<TagList> tags_;
  std::atomic<uint32_t> limit_{0};
};

}  // namespace verbena::queues
