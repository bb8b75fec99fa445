// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include <sched.h>

#include "base/time.h"

namespace verbena {

// Tells the processor that the caller spins, which frees resources for its other hardware thread.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A lock for critical sections of some tens of nanoseconds. lock() spins briefly, then yields: on a small
// machine the holder may be waiting for this processor. Meets BasicLockable and Lockable.
class SpinLock {
 public:
  void lock() {
    if (!try_lock()) [[unlikely]]
      wait_and_lock();
  }
  // Tries to lock and returns whether it did. Sequentially consistent, as unlock_and_look() requires.
  bool try_lock() { return !held_.exchange(true, std::memory_order_seq_cst); }
  // Tries to lock for up to `patience`, yielding between attempts. Returns whether the lock was taken.
  bool try_lock_for(Duration patience) {
    for (const TimePoint end = MonotonicClock::now() + patience; !try_lock();) {
      if (MonotonicClock::now() >= end) return false;
      sched_yield();
    }
    return true;
  }
  void unlock() { held_.store(false, std::memory_order_release); }
  // Unlocks. For a holder that also does the work which other threads leave to it while it has the lock. The
  // other thread publishes its work and then tries to lock. The holder unlocks and then looks for work. So
  // either the other thread finds the lock free, or the holder finds the work. This fails if one of the two
  // reorders its operations, even in a store buffer. So the work, too, must be published and looked for with
  // sequentially consistent operations.
  void unlock_and_look() { held_.store(false, std::memory_order_seq_cst); }

 private:
  [[gnu::cold, gnu::noinline]] void wait_and_lock() {
    for (int spins = 0; !try_lock(); ++spins) {
      while (held_.load(std::memory_order_relaxed)) {
        if (++spins < 100) {
          cpu_relax();
        } else {
          sched_yield();
        }
      }
    }
  }

  std::atomic<bool> held_{false};
};

}  // namespace verbena
