// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include <sys/auxv.h>
#include <sys/random.h>

#include "base/siphash.h"
#include "base/time.h"

namespace verbena::engine {

// What a process was started with by the kernel, when it has no randomness for us now.
inline SipKey secret_of_start() {
  SipKey secret;
  if (const auto* random = reinterpret_cast<const void*>(::getauxval(AT_RANDOM)))
    std::memcpy(&secret, random, sizeof secret);
  return secret;
}

// What nobody can guess, and different each time: of what one call has answered everything may become known,
// and nothing is known of what another has. So the secret of the keys is never that of the QPNs, which every
// packet shows.
inline SipKey random_secret() {
  SipKey secret;
  if (::getrandom(&secret, sizeof secret, 0) == sizeof secret) return secret;
  static std::atomic<uint64_t> drawn{0};
  const SipKey start = secret_of_start();
  const auto now = static_cast<uint64_t>(MonotonicClock::now().time_since_epoch().count());
  const SipKey of_now{siphash(start, now), siphash(start, ~now)};
  const uint64_t number = drawn.fetch_add(2);
  return {siphash(of_now, number), siphash(of_now, number + 1)};
}

}  // namespace verbena::engine
