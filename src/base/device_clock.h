// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <time.h>

namespace verbena {

// The clocks of completion timestamps. The device's own ticks once a nanosecond and is steered by nobody, as
// a counter in hardware would be; the wall clock is the system's.

inline constexpr uint64_t kDeviceClockKhz = 1'000'000;

inline uint64_t nanoseconds_of(clockid_t clock) {
  timespec now;
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
inline uint64_t device_clock() {
  return nanoseconds_of(CLOCK_MONOTONIC_RAW);
}
inline uint64_t wall_clock() {
  return nanoseconds_of(CLOCK_REALTIME);
}

}  // namespace verbena
