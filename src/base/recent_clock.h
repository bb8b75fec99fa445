// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"

namespace verbena {

// A clock for somebody who asks it many times a microsecond: it reads the clock behind it only when the
// processor's counter of ticks says that a microsecond or two have passed since it last did. So it may be
// late by that, never early, and never goes backwards. One thread at a time.
class RecentClock {
 public:
  using Clock = TimePoint (*)();

  // A clock other than the monotonic one, as tests have, is read each time.
  explicit RecentClock(Clock clock) : clock_(clock), skips_(clock == MonotonicClock::now) {}

  TimePoint now() {
#if defined(__x86_64__)
    if (skips_) {
      const uint64_t ticks = __builtin_ia32_rdtsc();
      if (is_recent(ticks)) return last_;
      read_at_ = ticks;
    }
#endif
    return last_ = clock_();
  }
  // Whether now() would not read the clock.
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
  // A microsecond and a half at 2 GHz, and at most three on any processor that has the counter. To read the
  // clock takes a fiftieth of that.
  static constexpr uint64_t kTicks = 3000;

  // Not when the counter is that of another processor, and behind.
  bool is_recent(uint64_t ticks) const {
    return ticks - read_at_ < kTicks;
  }

  const Clock clock_;
  const bool skips_;
  uint64_t read_at_ = 0;
  TimePoint last_{};
};

}  // namespace verbena
