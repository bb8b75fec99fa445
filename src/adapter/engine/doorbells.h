// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "adapter/transport/queue_pair.h"

namespace verbena::engine {

// The QPs to which a thread posted requests while another thread held the shard's lock. A lock-free stack:
// any thread pushes, and the lock's holder takes all. A QP is in it at most once.
//
// No doorbell is missed. A poster calls ring(), then fails SpinLock::try_lock(). The holder calls
// SpinLock::unlock_and_look(), then any(). These are sequentially consistent: either the holder sees the
// doorbell, or the poster finds the lock free.
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

  // Takes all QPs, and calls answer(qp) for each, in the order of ring(). REQUIRES: the shard's lock is held
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
