// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/tick_clock.h"
#include "base/time.h"

namespace verbena {

// A monotonic clock for callers that read it many times a microsecond. now() returns its last value until the
// TSC shows that 3,000 ticks have passed, a microsecond or two. Then it derives the time from the TSC
// (TickClock), and only sometimes reads the system clock. So now() may lag by those 3,000 ticks and run ahead
// by at most a microsecond. now() never goes backwards. One thread at a time.
class RecentClock {
 public:
  using Clock = TimePoint (*)();

  // Any clock other than MonotonicClock::now, as in tests, is read on every call.
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
  // Whether now() would return the cached value.
  bool is_recent() const {
#if defined(__x86_64__)
    return skips_ && is_recent(__builtin_ia32_rdtsc());
#else
    return false;
#endif
  }
  // Reads the clock itself. Any thread.
  TimePoint exact() const {
    return clock_();
  }

 private:
  // The age in ticks up to which a value counts as recent: 1.5 us at 2 GHz, at most 3 us on any processor
  // with a TSC.
  static constexpr uint64_t kTicks = 3000;

  // Whether `ticks` is less than kTicks after the last reading. Returns false if the counter is behind, as on
  // another processor whose counter differs.
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
    constexpr uint64_t kQuick = 16 * kTicks;  // more: the thread was preempted between the readings
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
