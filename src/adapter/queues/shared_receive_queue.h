// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <infiniband/verbs.h>

#include "adapter/memory/region.h"
#include "adapter/queues/completion_queue.h"
#include "adapter/queues/mapped_array.h"
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

// Notified when a shared receive queue has fewer requests than its limit. Called while the lock for taking
// requests from the queue is held.
class LimitListener {
 public:
  virtual ~LimitListener() = default;
  virtual void on_limit_reached() = 0;
};

class TagList;

// Receive requests that several QPs share (IBTA volume 1, 10.2.9).
//
// Thread-safe: QPs of several shards may take requests. Posting and taking have a lock each, so that neither
// waits for the other. Only tags() is not thread-safe: it is for the thread that holds the lock of the
// queue's shard.
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
  // Returns the ring, for posting. REQUIRES: lock() is held
  RecvQueue& ring() { return ring_; }

  // Makes a ring for exchange(), with room for at least `requests`.
  Result<RecvQueue> make_ring(uint32_t requests) const { return make_ring(config_, requests); }

  // Returns the armed limit; 0 if none is armed.
  uint32_t limit() const { return limit_.load(std::memory_order_relaxed); }

  // ---- taking

  // Arms the limit: the listener is called once, as soon as fewer than `limit` requests are left. If they are
  // already fewer, arm() calls the listener. A `limit` of 0 disarms.
  void arm(uint32_t limit);

  // Returns the tagged buffers; nullptr if the queue is not for tag matching.
  TagList* tags() { return tags_.get(); }

  // Moves the oldest request to `into`. Returns false if there is none.
  bool take(HeldReceive& into);
  // Returns whether there is a request. Another QP may take this request before the caller does.
  bool any() {
    const std::lock_guard guard(taking_);
    return !ring_.empty();
  }

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

// Finds a process's shared receive queues for XRC by their SRQ numbers. A number has 24 bits: a slot of the
// process and an index, like a QPN. The slot tells other processes which process owns the queue. Only the
// thread that holds the lock of this slot's shard may use the table.
class SharedReceiveQueueTable {
 public:
  static constexpr uint32_t kIndexBits = 14;
  static constexpr uint32_t kMax = 1u << kIndexBits;

  explicit SharedReceiveQueueTable(uint32_t slot) : slot_(slot) {}

  // Reserves a number that no queue has, and that was unused for as long as possible; never 0. Errors: ENOMEM
  // if all numbers are reserved.
  Result<uint32_t> reserve() {
    if (entries_.empty()) entries_.resize(kMax);
    for (uint32_t tried = 0; tried < kMax; ++tried) {
      next_ = (next_ + 1) % kMax;
      const uint32_t number = slot_ << kIndexBits | next_;
      if (number == 0 || entries_[next_].reserved) continue;
      entries_[next_].reserved = true;
      return number;
    }
    return fail(ENOMEM);
  }
  // Adds a queue, whose number was reserved.
  void add(SharedReceiveQueue& queue) { entries_[queue.number() % kMax].queue = &queue; }
  // Removes the queue with this number, if there is one, and frees the number.
  void remove(uint32_t number) { entries_[number % kMax] = {}; }

  static uint32_t slot_of(uint32_t number) { return number >> kIndexBits; }
  // Returns whether the number belongs to this table's slot; the queue need not exist.
  bool is_own(uint32_t number) const { return slot_of(number) == slot_; }

  SharedReceiveQueue* find(uint32_t number) const {
    if (!is_own(number) || entries_.empty()) return nullptr;
    return entries_[number % kMax].queue;
  }

 private:
  struct Entry {
    SharedReceiveQueue* queue = nullptr;
    bool reserved = false;
  };
  const uint32_t slot_;
  uint32_t next_ = 0;
  std::vector<Entry> entries_;  // empty until the first reserve()
};

// The tagged buffers of a shared receive queue for tag matching (ibv_post_srq_ops(3)), in the order in which
// they were added. A message goes to the oldest buffer that has the message's tag under the buffer's mask.
//
// A message that matches no buffer is unexpected, and the application handles it. The application may be
// about to add a buffer for this very message. So a buffer that is added while unexpected messages are not
// all handled matches nothing at first. It matches from the time when the application has handled them all
// (synchronize()).
//
// Only the thread that holds the shard's lock may use the list. Nothing is allocated after create().
class TagList {
 public:
  struct Buffer {
    uint64_t tag;
    uint64_t mask;  // a message matches if its tag under this mask is `tag`
    uint64_t wr_id;
    std::span<const ibv_sge> list;
  };

  // Creates a list for at most `most` buffers. Errors: EINVAL if `most` is 0 or above 65536; ENOMEM.
  static Result<std::unique_ptr<TagList>> create(uint32_t most);

  uint32_t capacity() const { return max_; }

  // Appends a buffer. Returns its handle for remove(). Errors: ENOMEM if the list is full. REQUIRES:
  // buffer.list.size() <= kMaxSge
  Result<uint32_t> add(const Buffer& buffer);
  // Removes the buffer with this handle. Returns false if there is none, for example because a message has
  // taken it.
  bool remove(uint32_t handle);

  // Moves the oldest buffer that matches the tag to `into`. Returns false if there is none.
  bool take(uint64_t tag, HeldReceive& into);
  // Returns the receive request of the buffer that take() would take, so that the caller learns the buffer's
  // size; nullptr if none matches.
  const RecvWqe* find(uint64_t tag) const {
    const uint32_t place = search(tag);
    return place == kNone ? nullptr : &at(place).receive.wqe;
  }

  // Counts a message that no buffer matched.
  void count_unexpected() { ++unexpected_; }
  // Stores how many unexpected messages the application has handled since the list was created, modulo 2^32.
  // If it has handled all that were counted (count_unexpected()), the waiting buffers match from now on.
  void synchronize(uint32_t handled);
  bool is_synchronized() const { return handled_ == unexpected_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    uint64_t tag;
    uint64_t mask;
    uint32_t next;
    uint32_t previous;
    uint32_t generation;  // how often the entry was used: makes its handles different
    bool used;
    bool waits;  // matches nothing until synchronize()
    HeldReceive receive;
  };

  TagList(MappedArray entries, uint32_t most) : entries_(std::move(entries)), max_(most) {}
  Entry& at(uint32_t place) const { return reinterpret_cast<Entry*>(entries_.data())[place]; }
  uint32_t search(uint64_t tag) const;
  uint32_t free_place();
  void unlink(uint32_t place);

  MappedArray entries_;
  const uint32_t max_;
  uint32_t first_ = kNone;
  uint32_t last_ = kNone;
  uint32_t first_free_ = kNone;  // used places that are free again, linked by `next`
  uint32_t fresh_ = 0;           // places from here on have never been used
  uint32_t unexpected_ = 0;
  uint32_t handled_ = 0;
};

}  // namespace verbena::queues
