// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <time.h>

namespace verbena {

// The clocks of completion timestamps. The device clock is CLOCK_MONOTONIC_RAW: it ticks once a nanosecond
// and NTP does not adjust it, like a hardware counter. The wall clock is CLOCK_REALTIME.

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
