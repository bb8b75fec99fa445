// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "observe/capture/layout.h"

namespace verbena::capture {

// A ring's memory, as a file that is handed from one process to another. Its size is sealed, and its pages
// are there from the start: nobody who maps it can be made to fault.
Result<UniqueFd> make_ring_file(uint32_t snap_bytes);

// The same, mapped. Neither of the two who have it is trusted by the other.
class RingMapping {
 public:
  // EPROTO: it is no ring, of another layout, or one that could be taken away from under us.
  static Result<RingMapping> map(int file);
  RingMapping(RingMapping&& other) noexcept : ring_(std::exchange(other.ring_, nullptr)) {}
  RingMapping& operator=(RingMapping&& other) noexcept {
    std::swap(ring_, other.ring_);
    return *this;
  }
  ~RingMapping();

  RingMemory& memory() const { return *ring_; }

 private:
  explicit RingMapping(RingMemory* ring) : ring_(ring) {}
  RingMemory* ring_;
};

}  // namespace verbena::capture
