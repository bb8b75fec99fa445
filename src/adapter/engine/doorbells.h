// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "adapter/transport/queue_pair.h"

namespace verbena::engine {

// QPs that somebody posted to while the shard was busy: a lock-free stack, pushed by any thread, taken whole
// by the shard's lock holder. A QP is in it at most once.
//
// ring() and then a failing SpinLock::try_lock() here, SpinLock::unlock_and_look() and then any() there:
// sequentially consistent, so that a doorbell is either answered by the holder or finds the lock free.
class Doorbells {
 public:
  void ring(transport::QueuePair& qp) {
    if (qp.doorbell_rung.exchange(true, std::memory_order_acq_rel)) return;
    transport::QueuePair* top = top_.load(std::memory_order_relaxed);
    do {
      qp.doorbell_next.store(top, std::memory_order_relaxed);
    } while (!top_.compare_exchange_weak(top, &qp, std::memory_order_seq_cst, std::memory_order_relaxed));
  }

  bool any() const { return top_.load(std::memory_order_seq_cst) != nullptr; }

  // Calls answer(qp) for each, in the order in which they rang.
  template <class Answer>
  void take(Answer answer) {
    if (!any()) return;
    transport::QueuePair* newest = top_.exchange(nullptr, std::memory_order_acquire);
    transport::QueuePair* oldest = nullptr;
    while (newest != nullptr) {
      transport::QueuePair* next = newest->doorbell_next.load(std::memory_order_relaxed);
      newest->doorbell_next.store(oldest, std::memory_order_relaxed);
      oldest = newest;
      newest = next;
    }
    while (oldest != nullptr) {
      transport::QueuePair* next = oldest->doorbell_next.load(std::memory_order_relaxed);
      // Cleared before answering: a thread that posts from here on rings again.
      oldest->doorbell_rung.exchange(false, std::memory_order_acq_rel);
      answer(*oldest);
      oldest = next;
    }
  }

 private:
  std::atomic<transport::QueuePair*> top_{nullptr};
};

}  // namespace verbena::engine
