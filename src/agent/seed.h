// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <sys/random.h>

#include "base/time.h"

namespace verbena::agent {

// For a Random that differs from one process to the next. Not for secrets: where the kernel has no chance to
// give yet, this is the time.
inline uint64_t draw_seed() {
  uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, 0) != sizeof seed) {
    seed = static_cast<uint64_t>(MonotonicClock::now().time_since_epoch().count());
  }
  return seed;
}

}  // namespace verbena::agent
