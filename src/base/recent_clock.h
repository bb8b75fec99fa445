// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/tick_clock.h"
#include "base/time.h"

namespace verbena {

// A clock for somebody who asks it many times a microsecond: it looks again only when the processor's counter
// of ticks says that a microsecond or two have passed since it last did, and then mostly at that counter
// (TickClock). So it may be late by that, early by no more than a microsecond, and never goes backwards. One
// thread at a time.
class RecentClock {
 public:
  using Clock = TimePoint (*)();

  // A clock other than the monotonic one, as tests have, is read each time.
  explicit RecentClock(Clock clock) : clock_(clock), skips_(clock == MonotonicClock::now) {}

  TimePoint now() {
#if defined(__x86_64__)
    if (skips_) {
      const uint64_t ticks = __builtin_ia32_rdtsc();
      return is_recent(ticks) ? last_ : look(ticks);
    }
#endif
    return last_ = clock_();
  }
  // Whether now() would not look.
  bool is_recent() const {
#if defined(__x86_64__)
    return skips_ && is_recent(__builtin_ia32_rdtsc());
#else
    return false;
#endif
  }
  // Right now. Any thread.
  TimePoint exact() const {
    return clock_();
  }

 private:
  // A microsecond and a half at 2 GHz, and at most three on any processor that has the counter.
  static constexpr uint64_t kTicks = 3000;

  // Not when the counter is that of another processor, and behind.
  bool is_recent(uint64_t ticks) const {
    return ticks - looked_at_ < kTicks;
  }

#if defined(__x86_64__)
  TimePoint look(uint64_t ticks) {
    looked_at_ = ticks;
    const auto told = tick_clock_.at(ticks);
    return last_ = std::max(last_, told ? *told : read(ticks));
  }

  TimePoint read(uint64_t before) {
    constexpr uint64_t kQuick = 16 * kTicks;  // the thread has not lost its processor meanwhile
    const TimePoint time = clock_();
    const uint64_t after = __builtin_ia32_rdtsc();
    if (after - before < kQuick) {
      tick_clock_.read(after, time);
    } else {
      tick_clock_.forget();
    }
    return time;
  }
#endif

  const Clock clock_;
  const bool skips_;
  uint64_t looked_at_ = 0;
  TickClock tick_clock_;
  TimePoint last_{};
};

}  // namespace verbena
