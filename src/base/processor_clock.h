// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <ctime>

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

}  // namespace verbena
