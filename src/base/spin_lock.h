// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include <sched.h>

namespace verbena {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A lock for critical sections of some tens of nanoseconds. Spins briefly, then yields: on a small machine
// the holder may be the one waiting for our processor. Meets BasicLockable and Lockable.
class SpinLock {
 public:
  void lock() {
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
  bool try_lock() { return !held_.exchange(true, std::memory_order_acquire); }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace verbena
