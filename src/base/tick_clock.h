// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/time.h"

namespace verbena {

// What time it is, told from the processor's counter of ticks and from what the clock said a moment ago. To
// read the clock takes as long as a small message: it waits for all that the processor is still fetching.
//
// How long a tick is it learns from the readings, and believes it while they agree. So a counter that stops,
// changes its pace or is another processor's costs readings, and errors of a moment's length at most. Pure:
// for tests, and for RecentClock.
class TickClock {
 public:
  // So many ticks it goes on from a reading: under a millisecond.
  static constexpr uint64_t kMoment = 1 << 20;

  // The time at `ticks`. None: the clock is to be read, and read() to be told.
  std::optional<TimePoint> at(uint64_t ticks) const {
    const uint64_t elapsed = ticks - read_at_;
    if (elapsed >= kMoment || scale_ == 0) return std::nullopt;
    return time_ + Duration(static_cast<int64_t>(elapsed * scale_ >> kShift));
  }

  // The clock said `time`, and after that the counter `ticks`.
  void read(uint64_t ticks, TimePoint time) {
    const uint64_t elapsed = ticks - read_at_;
    if (elapsed < kMoment && time > time_) return;  // too short a time to learn from
    const uint64_t measured = scale_of(elapsed, time - time_);
    scale_ = agree(measured, measured_) ? measured : 0;
    measured_ = measured;
    read_at_ = ticks;
    time_ = time;
  }

  // A reading took so long that nobody knows what it says. The clock is read again next time.
  void forget() { scale_ = measured_ = 0; }

 private:
  static constexpr unsigned kShift = 32;
  static constexpr uint64_t kMaxTicks = uint64_t{1} << 40;       // some minutes
  static constexpr Duration kLongest = std::chrono::seconds(1);  // to be learned from
  static constexpr uint64_t kTolerance = 1024;

  // Nanoseconds a tick, times 2^32; 0: that cannot be.
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
  uint64_t measured_ = 0;  // the length of a tick, as of the last two readings
  uint64_t scale_ = 0;     // the same, as two such have found it; 0: they do not agree
};

}  // namespace verbena
