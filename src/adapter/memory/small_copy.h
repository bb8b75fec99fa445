// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <ucontext.h>

#include "base/bytes.h"

namespace verbena::memory {

// A guarded copy of a few bytes (guarded.h) that prepares nothing. A landing costs more than the copy itself;
// this one is written in assembly, so that from the address of the instruction that faulted the handler knows
// all there is to know: that it was this copy, and where it goes on.
//
// The sanitizers would not see what it touches, and other processors have no such copy: there it does not
// exist.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
inline constexpr size_t kMaxSmallCopy = 64;
#else
inline constexpr size_t kMaxSmallCopy = 0;
#endif

constexpr bool is_small_copy(size_t bytes) {
  return bytes - 1 < kMaxSmallCopy;
}

// Copies upwards: who has seen the last byte change sees all of them, and an aligned word that ends with it
// changes whole and once. False: a fault.
// REQUIRES: is_small_copy(from.size()), the thread takes faults
bool copy_small(std::byte* to, ConstBytes from);

// Whether it was interrupted within such a copy, and by a fault, as the caller knows: then the copy ends,
// with false. Async-signal-safe.
bool abandon_small_copy(ucontext_t& interrupted);

}  // namespace verbena::memory
