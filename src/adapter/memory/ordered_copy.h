// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.h"

namespace verbena::memory {

// Copies pieces one after the other, in ascending order. A thread that sees the last byte change (or an
// aligned word of up to eight bytes that ends with it) then sees all other bytes. Programs rely on this for
// an RDMA WRITE of one message, as adapters write ascending addresses; memcpy() promises no order. A message
// that is a single such word is stored at once, and once.
//
// Under guard. False: a fault; `to` may be partly written. REQUIRES: install_fault_guard() was called
bool copy_in_order_guarded(std::byte* to, ConstBytes from);
bool copy_pieces_in_order_guarded(std::byte* to, std::span<const ConstBytes> pieces);
inline bool copy_in_order_guarded(std::byte* to, std::span<const ConstBytes> pieces) {
  if (pieces.size() == 1) [[likely]]
    return copy_in_order_guarded(to, pieces.front());
  return copy_pieces_in_order_guarded(to, pieces);
}

// Fills writable pieces one after the other from `from`, without ordering. Under guard. False: a fault.
bool scatter_guarded(std::span<const ConstBytes> pieces, const std::byte* from);

}  // namespace verbena::memory
