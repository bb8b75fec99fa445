// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "observe/capture/layout.h"

namespace verbena::capture {

// Creates a ring's memfd, for passing it to another process. Its size is sealed and all pages are allocated,
// so accesses to a mapping cannot fault.
Result<UniqueFd> make_ring_file(uint32_t snap_bytes);

// A mapped ring. Its two users do not trust each other.
class RingMapping {
 public:
  // EPROTO: no ring, a different layout, or a size that is not sealed.
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
