// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace verbena {

// The monotonic clock, in nanoseconds. Protocol code never reads a clock: callers pass times in as
// TimePoints, so that a run can be replayed.
struct MonotonicClock {
  using rep = int64_t;
  using period = std::nano;
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<MonotonicClock>;
  static constexpr bool is_steady = true;

  static time_point now() {
    return time_point(
        std::chrono::duration_cast<duration>(std::chrono::steady_clock::now().time_since_epoch()));
  }
};

using Duration = MonotonicClock::duration;
using TimePoint = MonotonicClock::time_point;

// A deadline that never comes.
inline constexpr TimePoint kNever = TimePoint::max();

}  // namespace verbena
