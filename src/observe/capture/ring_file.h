// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "observe/capture/layout.h"

namespace verbena::capture {

// Creates the memfd of an empty ring, for passing it to another process. The size is sealed and all pages are
// allocated, so accesses to a mapping cannot fault. `snap_bytes`: RingMemory::snap_bytes.
Result<UniqueFd> make_ring_file(uint32_t snap_bytes);

// Owns the mapping of a ring in this process. The writing and the reading process do not trust each other.
class RingMapping {
 public:
  // Maps the ring in `file`. Errors: EPROTO if the file is no ring, has a different layout version, or its
  // size is not sealed; those of mmap(2).
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
