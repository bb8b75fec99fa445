// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.h"

namespace verbena::memory {

// Copies pieces one after the other, in ascending order. A thread that sees the last byte change then sees
// all other bytes. This also holds for an aligned word of up to eight bytes that ends with the last byte.
// Programs rely on this for an RDMA WRITE of one message, as adapters write ascending addresses; memcpy()
// promises no order. A message that is a single such word is written by one store.
//
// All copy under guard. They return false after a fault; `to` may be partly written. REQUIRES:
// install_fault_guard() was called
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
