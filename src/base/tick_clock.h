// SPDX-License-Identifier: Apache-2.0
#pragma once

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
  // The number of ticks for which a reading is used: under a millisecond above 1.05 GHz.
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

}  // namespace verbena
