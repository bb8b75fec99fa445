// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.h"

namespace verbena::memory {

// Copies the pieces, one behind the other, so that who waits for the last byte (or for an aligned word of up
// to eight bytes that ends with it) to change finds all the others there. Programs rely on it that an RDMA
// WRITE of one message arrives so, as adapters write ascending addresses; memcpy() promises no order. A
// message that is such a word arrives at once, and once.
//
// Under guard. False: a fault; `to` may be partly written. REQUIRES: install_fault_guard() was called
bool copy_in_order_guarded(std::byte* to, ConstBytes from);
bool copy_pieces_in_order_guarded(std::byte* to, std::span<const ConstBytes> pieces);
inline bool copy_in_order_guarded(std::byte* to, std::span<const ConstBytes> pieces) {
  if (pieces.size() == 1) [[likely]]
    return copy_in_order_guarded(to, pieces.front());
  return copy_pieces_in_order_guarded(to, pieces);
}

// The other way round, in no order: fills the pieces, which are writable, one behind the other.
bool scatter_guarded(std::span<const ConstBytes> pieces, const std::byte* from);

}  // namespace verbena::memory
