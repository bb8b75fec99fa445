// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/cache_line.h"
#include "base/spin_lock.h"
#include "base/time.h"

namespace verbena {

// A lock for critical sections of some microseconds, which hundreds of threads may want at once. Meets
// BasicLockable and Lockable.
//
// Threads that can leave their work to the holder call try_lock() and never wait. Threads that need the lock
// spin for a moment and then sleep, which leaves the processors to the holder and the threads that it serves.
// Each unlock wakes at most one sleeper. A sleeper that found the lock taken after three wake-ups claims it:
// try_lock() then fails for all others, and the sleeper gets the lock next.
//
// A section lasts from a lock to its unlock, and the lock counts sections. So a thread that has made an
// object unreachable can wait, without taking the lock, until no section that may still use the object is
// open: await_section().
class alignas(kCacheLine) SectionLock {
 public:
  SectionLock() = default;
  SectionLock(const SectionLock&) = delete;
  SectionLock& operator=(const SectionLock&) = delete;

  // Tries to lock; never waits. Also fails while the lock is free but claimed by a sleeper. The attempt is
  // sequentially consistent, even on failure, as unlock_and_look() requires.
  bool try_lock() {
    uint64_t seen = state_.load(std::memory_order_seq_cst);
    while ((seen & (kHeld | kClaimed)) == 0) {
      if (state_.compare_exchange_weak(seen, seen | kHeld, std::memory_order_seq_cst)) return true;
    }
    return false;
  }
  void lock() {
    for (int spins = 0; spins < kSpins; ++spins) {
      if (try_lock()) return;
      cpu_relax();
    }
    lock_slowly();
  }
  // Tries to lock for up to `patience`, yielding between attempts. Returns whether the lock was taken.
  bool try_lock_for(Duration patience);

  // Unlocks. For a holder that also does the work which other threads leave to it while it has the lock. The
  // other thread publishes its work and then tries to lock. The holder unlocks and then looks for work. So
  // either the other thread finds the lock free, or the holder finds the work. This fails if one of the two
  // reorders its operations, even in a store buffer. So the work, too, must be published and looked for with
  // sequentially consistent operations.
  void unlock_and_look() {
    const uint64_t before = state_.fetch_add(kSection - kHeld, std::memory_order_seq_cst);
    if (waiting_.load(std::memory_order_seq_cst) != 0) wake_one((before & kClaimed) != 0);
  }
  void unlock() { unlock_and_look(); }

  // Frees the lock in a child after fork(), which lacks the threads that held it or waited for it.
  void free_in_child();

  // Waits until the section that is open at the call, if any, has ended. A later section may be open when
  // this returns. Later sections see all data that was written with sequential consistency before the call.
  // Spins and yields. Any thread. REQUIRES: the caller does not hold the lock
  void await_section() const;

  // Returns the number of threads that sleep for the lock, or are about to. For tests.
  uint32_t waiting() const { return waiting_.load(std::memory_order_seq_cst); }

 private:
  static constexpr uint64_t kHeld = 1;
  static constexpr uint64_t kClaimed = 2;
  static constexpr uint64_t kWoken = 4;    // a sleeper has been woken and has not tried yet
  static constexpr uint64_t kSection = 8;  // bits from here on: number of sections so far
  static constexpr int kSpins = 100;

  void lock_slowly();
  bool claim();
  void take_claimed();
  void wake_one(bool claimed);

  std::atomic<uint64_t> state_{0};
  std::atomic<uint32_t> waiting_{0};  // threads in lock_slowly()
  // Futexes, incremented at each wake-up: for sleepers, and for the sleeper that claimed the lock.
  std::atomic<uint32_t> turn_{0};
  std::atomic<uint32_t> claimed_turn_{0};
};
static_assert(sizeof(SectionLock) == kCacheLine);

}  // namespace verbena
