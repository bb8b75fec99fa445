// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <ucontext.h>

#include "base/bytes.h"

namespace verbena::memory {

// A guarded copy of a few bytes (guarded.h) without the setjmp() of other guarded calls, which would cost
// more than the copy itself. It is written in assembly: the address of the faulting instruction tells the
// signal handler that it has interrupted this copy, and where to continue.
//
// Only on x86-64, and not with sanitizers, which would not see its accesses.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
inline constexpr size_t kMaxSmallCopy = 64;
#else
inline constexpr size_t kMaxSmallCopy = 0;
#endif

// Returns whether copy_small() takes this many bytes: 1 to kMaxSmallCopy.
constexpr bool is_small_copy(size_t bytes) {
  return bytes - 1 < kMaxSmallCopy;
}

// Copies `from` to `to` in ascending order. A thread that sees the last byte change sees all bytes; an
// aligned word that ends with the last byte is written by one store. Returns false after a fault. REQUIRES:
// is_small_copy(from.size()), the thread does not block SIGSEGV or SIGBUS
bool copy_small(std::byte* to, ConstBytes from);

// For a signal handler: if the fault interrupted copy_small(), makes copy_small() return false, and returns
// true. Async-signal-safe.
bool abandon_small_copy(ucontext_t& interrupted);

// Copy `from` or the pieces, one after the other, to `to` in ascending order. A thread that sees the last
// byte change then sees all other bytes. The same holds for a thread that watches an aligned word of up to
// eight bytes that ends with the last byte. Programs rely on this for an RDMA WRITE of one message, as
// adapters write ascending addresses; memcpy() promises no order. A message that is a single aligned word is
// written by one store.
//
// All three functions copy under guard. They return false after a fault, and `to` may then be partly written.
// REQUIRES: install_fault_guard() was called
bool copy_in_order_guarded(std::byte* to, ConstBytes from);
bool copy_pieces_in_order_guarded(std::byte* to, std::span<const ConstBytes> pieces);
inline bool copy_in_order_guarded(std::byte* to, std::span<const ConstBytes> pieces) {
  if (pieces.size() == 1) [[likely]]
    return copy_in_order_guarded(to, pieces.front());
  return copy_pieces_in_order_guarded(to, pieces);
}

// Copies the bytes at `from` into the pieces, one piece after the other. The pieces must be writable,
// although their type is const. Other threads may see the bytes change in any order. Copies under guard, as
// above: returns false after a fault, and the pieces may then be partly written. REQUIRES:
// install_fault_guard() was called
bool scatter_guarded(std::span<const ConstBytes> pieces, const std::byte* from);

}  // namespace verbena::memory
