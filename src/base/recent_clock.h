// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/time.h"

namespace verbena {

// Derives the time from the processor's tick counter (TSC) and an earlier reading of the clock. Reading the
// clock takes as long as sending a small message, since it waits for all outstanding loads.
//
// The length of a tick is learned from the readings and used while two consecutive measurements agree. A
// counter that stops, changes its rate or belongs to another processor causes extra readings, and errors of
// less than a millisecond. Pure: never reads a clock. A component of RecentClock.
class TickClock {
 public:
  // The number of ticks after which at() needs a new reading of the clock. It is under a millisecond if the
  // counter runs faster than 1.05 GHz.
  static constexpr uint64_t kMoment = 1 << 20;

  // Returns the time at `ticks`. Returns nullopt if the caller must read the clock and call read().
  std::optional<TimePoint> at(uint64_t ticks) const {
    const uint64_t elapsed = ticks - read_at_;
    if (elapsed >= kMoment || scale_ == 0) return std::nullopt;
    return time_ + Duration(static_cast<int64_t>(elapsed * scale_ >> kShift));
  }

  // Records a reading: the clock returned `time`, and right after it the counter was `ticks`.
  void read(uint64_t ticks, TimePoint time) {
    const uint64_t elapsed = ticks - read_at_;
    if (elapsed < kMoment && time > time_) return;  // too short an interval to learn from
    const uint64_t measured = scale_of(elapsed, time - time_);
    scale_ = agree(measured, measured_) ? measured : 0;
    measured_ = measured;
    read_at_ = ticks;
    time_ = time;
  }

  // Discards the learned length of a tick, after a reading that took too long to be accurate. The next at()
  // returns nullopt.
  void forget() { scale_ = measured_ = 0; }

 private:
  static constexpr unsigned kShift = 32;
  static constexpr uint64_t kMaxTicks = uint64_t{1} << 40;       // some minutes
  static constexpr Duration kLongest = std::chrono::seconds(1);  // maximum interval to learn from
  static constexpr uint64_t kTolerance = 1024;

  // Nanoseconds per tick, times 2^32; 0 if the interval is unusable.
  static uint64_t scale_of(uint64_t ticks, Duration time) {
    if (ticks >= kMaxTicks || time <= Duration::zero() || time > kLongest) return 0;
    return (static_cast<uint64_t>(time.count()) << kShift) / ticks;
  }
  static bool agree(uint64_t a, uint64_t b) {
    const uint64_t difference = a > b ? a - b : b - a;
    return a != 0 && difference < a / kTolerance;
  }

  uint64_t read_at_ = 0;
  TimePoint time_{};
  uint64_t measured_ = 0;  // scale of the last interval between two readings
  uint64_t scale_ = 0;     // scale of two consecutive intervals that agree; 0 if they disagree
};

// A monotonic clock for callers that read it many times a microsecond. now() returns its last value until the
// TSC shows that 3,000 ticks have passed, a microsecond or two. Then it derives the time from the TSC
// (TickClock), and only sometimes reads the system clock. So now() may lag by those 3,000 ticks and run ahead
// by at most a microsecond. now() never goes backwards. On processors without a TSC (not x86-64), each call
// reads the clock. One thread at a time.
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
