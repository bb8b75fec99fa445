// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <ctime>
#include <optional>

#include "base/time.h"

namespace verbena {

// The processor time that the calling thread has used. Unlike the monotonic clock, it stands still while
// other threads have the processor, so it measures a call on a busy machine, too. Each reading is a system
// call.
struct ProcessorClock {
  static TimePoint now() {
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return TimePoint(std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec));
  }
};

// Returns how long the calling thread has been ready to run but has waited for a processor so far. Monotonic
// time minus this time measures a call that waits for another process, for example for a page that the
// process holds. The processor clock stands still in such a call, and on a busy machine the monotonic clock
// counts too much. Returns nullopt if the kernel does not report the time: /proc/thread-self/schedstat cannot
// be read, or has 0 (without CONFIG_SCHEDSTATS). Takes three system calls; no cancellation point.
std::optional<Duration> wait_for_processor();

}  // namespace verbena
