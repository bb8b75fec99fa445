// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace verbena::rsockets {

// Allocates space for outgoing data in the ring of send buffers, in order. Does not check that the space is
// free: SendWindow tracks the free bytes. For the sending thread only.
class SendRing {
 public:
  explicit SendRing(uint32_t bytes) : bytes_(bytes) {}

  struct Piece {
    uint32_t offset;
    uint32_t length;
  };
  struct Place {
    std::array<Piece, 2> pieces;  // the second is empty unless the place wraps around
    uint32_t count;
  };

  // Takes the next `length` bytes of the ring. REQUIRES: 0 < length <= the ring's size
  Place take(uint32_t length) {
    const uint32_t first = std::min(length, bytes_ - at_);
    Place place{{{{at_, first}, {0, length - first}}}, length == first ? 1u : 2u};
    at_ = (at_ + length) % bytes_;
    return place;
  }

 private:
  const uint32_t bytes_;
  uint32_t at_ = 0;
};

}  // namespace verbena::rsockets
