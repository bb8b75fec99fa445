// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <time.h>

namespace verbena {

// The clocks of completion timestamps.

// The frequency of device_clock() in kHz: one tick is a nanosecond.
inline constexpr uint64_t kDeviceClockKhz = 1'000'000;

// Reads `clock` in nanoseconds.
inline uint64_t nanoseconds_of(clockid_t clock) {
  timespec now;
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
// Reads the clock of raw completion timestamps, CLOCK_MONOTONIC_RAW, in nanoseconds. NTP does not adjust this
// clock, so it runs freely like an adapter's hardware counter.
inline uint64_t device_clock() {
  return nanoseconds_of(CLOCK_MONOTONIC_RAW);
}
// Reads the clock of wall-clock completion timestamps, CLOCK_REALTIME, in nanoseconds since 1970.
inline uint64_t wall_clock() {
  return nanoseconds_of(CLOCK_REALTIME);
}

}  // namespace verbena
