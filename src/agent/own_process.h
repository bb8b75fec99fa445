// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/random.h>
#include <sys/resource.h>

#include "base/time.h"

namespace verbena::agent {

// Returns the maximum number of descriptors that the agent may have open (soft RLIMIT_NOFILE). The maximum
// numbers of sessions, event channels, clients' files and XRC domains follow from it.
inline size_t descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

// Returns a seed for Random that differs between processes. Not for secrets: if getrandom(2) fails, the seed
// is the clock's time.
inline uint64_t draw_seed() {
  uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, 0) != sizeof seed) {
    seed = static_cast<uint64_t>(MonotonicClock::now().time_since_epoch().count());
  }
  return seed;
}

}  // namespace verbena::agent
