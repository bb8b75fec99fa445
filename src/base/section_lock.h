// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/cache_line.h"
#include "base/spin_lock.h"
#include "base/time.h"

namespace verbena {

// A lock for sections of microseconds that hundreds of threads may want, some of which need not have it.
// Meets BasicLockable and Lockable.
//
// Those that can leave their work to the holder call try_lock() and never wait. Those that must have the lock
// spin for a moment and then sleep, so that the processors are left to the holder and to those whom it
// serves. Each unlocking wakes one sleeper at most. A sleeper that has been woken a few times and found the
// lock taken again claims it: from then on try_lock() fails, and the lock is the sleeper's next.
//
// Sections are counted. So somebody who has made something unreachable can wait, without taking the lock,
// until nobody can still be using it: await_section().
class alignas(kCacheLine) SectionLock {
 public:
  SectionLock() = default;
  SectionLock(const SectionLock&) = delete;
  SectionLock& operator=(const SectionLock&) = delete;

  // Sequentially consistent, also when it fails, for the sake of unlock_and_look(). It fails too while the
  // lock is free but claimed: the thread that has claimed it is going to have a section of its own.
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
  // Gives up when the lock cannot be taken for so long.
  bool try_lock_for(Duration patience);

  // For a holder who does what others, finding the lock taken, have left for it. They leave it and then fail
  // to lock; the holder unlocks and then looks. One of the two must see the other, so neither pair may be
  // reordered, not even by a store buffer: what is left is written, and looked for, by sequentially
  // consistent operations too.
  void unlock_and_look() {
    const uint64_t before = state_.fetch_add(kSection - kHeld, std::memory_order_seq_cst);
    if (waiting_.load(std::memory_order_seq_cst) != 0) wake_one((before & kClaimed) != 0);
  }
  void unlock() { unlock_and_look(); }

  // In a child after fork(), where the threads that held the lock or waited for it are not: it is free.
  void free_in_child();

  // ---- any thread that is not in a section itself

  // Returns when the section that is open now, if one is, has ended; others may have begun since. What was
  // written before with sequential consistency is seen by all sections from then on.
  void await_section() const;

  // For tests.
  uint32_t waiting() const { return waiting_.load(std::memory_order_seq_cst); }

 private:
  static constexpr uint64_t kHeld = 1;
  static constexpr uint64_t kClaimed = 2;
  static constexpr uint64_t kWoken = 4;    // a sleeper has been woken and has not tried yet
  static constexpr uint64_t kSection = 8;  // from here on: how many sections there were
  static constexpr int kSpins = 100;

  void lock_slowly();
  bool claim();
  void take_claimed();
  void wake_one(bool claimed);

  std::atomic<uint64_t> state_{0};
  std::atomic<uint32_t> waiting_{0};  // threads in lock_slowly()
  // Futexes, counted up at each waking: of those who wait, and of the one who has claimed.
  std::atomic<uint32_t> turn_{0};
  std::atomic<uint32_t> claimed_turn_{0};
};
static_assert(sizeof(SectionLock) == kCacheLine);

}  // namespace verbena
