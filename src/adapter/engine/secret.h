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

// Returns 16 random bytes that the kernel gave this process at its start (AT_RANDOM), or all zero if it gave
// none. random_secret() uses them if getrandom(2) fails.
inline SipKey secret_of_start() {
  SipKey secret;
  if (const auto* random = reinterpret_cast<const void*>(::getauxval(AT_RANDOM)))
    std::memcpy(&secret, random, sizeof secret);
  return secret;
}

// Returns an unguessable key, a different one each time. The keys of two calls are independent: if one
// becomes known, the other does not. For example, QPNs and memory keys come from two such keys. So QPNs,
// which every packet shows, reveal nothing of memory keys.
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
