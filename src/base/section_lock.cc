// SPDX-License-Identifier: Apache-2.0
#include "base/section_lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena {
namespace {

// The number of failed attempts after wake-ups before a sleeper claims the lock.
constexpr uint32_t kTriesBeforeClaim = 3;
constexpr int kSpinsBeforeYield = 100;

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Bare system calls: the C library's are cancellation points.
void sleep_on(std::atomic<uint32_t>& word, uint32_t seen) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void wake_on(std::atomic<uint32_t>& word) {
  word.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace

// No wake-up is lost: kWoken is cleared after `turn` is read and before the lock is tried. If the try fails,
// a later unlock follows. That unlock either finds kWoken clear and increments turn_, so that this thread
// does not sleep, or finds it set by another unlock after our clearing, which has incremented turn_ already.
void SectionLock::lock_slowly() {
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  for (uint32_t tries = 0;; ++tries) {
    const uint32_t turn = turn_.load(std::memory_order_seq_cst);
    state_.fetch_and(~kWoken, std::memory_order_seq_cst);
    if (try_lock()) break;
    if (tries >= kTriesBeforeClaim && claim()) {
      take_claimed();
      break;
    }
    sleep_on(turn_, turn);
  }
  waiting_.fetch_sub(1, std::memory_order_seq_cst);
}

// Claims the lock for the calling thread. False if another sleeper has claimed it.
bool SectionLock::claim() {
  return (state_.fetch_or(kClaimed, std::memory_order_seq_cst) & kClaimed) == 0;
}

void SectionLock::take_claimed() {
  for (;;) {
    const uint32_t turn = claimed_turn_.load(std::memory_order_seq_cst);
    uint64_t seen = state_.load(std::memory_order_seq_cst);
    while ((seen & kHeld) == 0) {
      const uint64_t ours = (seen | kHeld) & ~kClaimed;
      if (state_.compare_exchange_weak(seen, ours, std::memory_order_seq_cst)) return;
    }
    sleep_on(claimed_turn_, turn);
  }
}

void SectionLock::wake_one(bool claimed) {
  if (claimed) {
    wake_on(claimed_turn_);
  } else if ((state_.fetch_or(kWoken, std::memory_order_seq_cst) & kWoken) == 0) {
    wake_on(turn_);
  }
}

bool SectionLock::try_lock_for(Duration patience) {
  for (const TimePoint end = MonotonicClock::now() + patience; !try_lock();) {
    if (MonotonicClock::now() >= end) return false;
    sched_yield();
  }
  return true;
}

void SectionLock::free_in_child() {
  const uint64_t sections = state_.load(std::memory_order_relaxed) & ~(kSection - 1);
  waiting_.store(0, std::memory_order_relaxed);
  state_.store(sections + kSection, std::memory_order_seq_cst);
}

void SectionLock::await_section() const {
  uint64_t seen = state_.load(std::memory_order_seq_cst);
  const uint64_t section = seen / kSection;
  for (int spins = 0; (seen & kHeld) != 0 && seen / kSection == section; ++spins) {
    if (spins < kSpinsBeforeYield) {
      cpu_relax();
    } else {
      sched_yield();
    }
    seen = state_.load(std::memory_order_seq_cst);
  }
}

}  // namespace verbena
