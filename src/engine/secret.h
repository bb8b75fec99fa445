// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <sys/random.h>

#include "base/time.h"

namespace verbena::engine {

// What nobody can guess; without the kernel's randomness, what is at least different each time.
inline uint64_t random_secret() {
  uint64_t secret = 0;
  if (::getrandom(&secret, sizeof secret, 0) != sizeof secret) {
    secret = static_cast<uint64_t>(MonotonicClock::now().time_since_epoch().count()) ^
             reinterpret_cast<uintptr_t>(&secret);
  }
  return secret;
}

}  // namespace verbena::engine
