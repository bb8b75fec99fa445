// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <infiniband/verbs.h>

#include "base/result.h"
#include "base/spin_lock.h"
#include "queues/mapped_array.h"

namespace verbena::queues {

// Hears what a completion queue has to tell besides its entries. Called without the queue's lock held, by
// whichever thread pushed.
class CompletionListener {
 public:
  virtual ~CompletionListener() = default;
  // The armed queue got an entry that counts; the queue is disarmed.
  virtual void on_completion_event() = 0;
  // An entry did not fit: the queue is in error from now on (IBTA volume 1, 11.2.9 "CQ overrun").
  virtual void on_overflow() = 0;
};

// A ring of completions. Thread-safe: shards push, any thread polls.
class CompletionQueue {
 public:
  // Room for at least `entries`; rounded up to 2^n - 1. REQUIRES: entries > 0
  // `memory`, which may be null, is where its ring comes from, when resized too; it must outlive the queue.
  static Result<std::unique_ptr<CompletionQueue>> create(uint32_t entries, CompletionListener* listener,
                                                         RingMemory* memory = nullptr);

  uint32_t capacity() const { return mask_; }

  // Adds an entry. `solicited`: it counts for a queue armed for solicited events only, as errors always do.
  void push(const ibv_wc& wc, bool solicited);

  // Takes up to `count` entries, oldest first; returns how many. -1 when the queue is in error and drained.
  int poll(int count, ibv_wc* out);

  bool empty() const {
    return tail_.load(std::memory_order_acquire) == head_.load(std::memory_order_relaxed);
  }

  // Asks for one event at the next entry (or the next solicited one). A request for any entry outweighs one
  // for solicited entries. An entry that is already there makes none (IBTA volume 1, 11.4.2.2).
  void arm(bool solicited_only);

  // EINVAL when the entries there would not fit.
  Result<void> resize(uint32_t entries);

  // Drops the entries of a QP that is being destroyed: its number may be used again.
  void remove_entries_of(uint32_t qp_num);

 private:
  enum class Armed : uint8_t { kNo, kSolicited, kAny };

  CompletionQueue(MappedArray ring, uint32_t slots, CompletionListener* listener, RingMemory* memory)
      : ring_(std::move(ring)), mask_(slots - 1), listener_(listener), memory_(memory) {}
  ibv_wc& at(uint32_t index) { return reinterpret_cast<ibv_wc*>(ring_.data())[index & mask_]; }

  SpinLock lock_;
  MappedArray ring_;
  uint32_t mask_;
  Armed armed_ = Armed::kNo;
  std::atomic<bool> overflowed_{false};
  std::atomic<uint32_t> head_{0};  // next to poll
  std::atomic<uint32_t> tail_{0};  // next to fill
  CompletionListener* const listener_;
  RingMemory* const memory_;
};

}  // namespace verbena::queues
