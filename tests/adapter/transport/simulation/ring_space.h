// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace verbena::transport {

// Allocates contiguous stretches of a buffer, which are freed in the order of allocation.
class RingSpace {
 public:
  struct Stretch {
    uint32_t offset = 0;
    uint64_t end = 0;  // for give_back()
  };

  explicit RingSpace(uint32_t bytes) : bytes_(bytes) {}

  // Nullopt if there is no room now. REQUIRES: `bytes` is at most half of the buffer.
  std::optional<Stretch> take(uint32_t bytes) {
    bytes = (bytes + 7) & ~7u;
    uint64_t from = head_;
    if (from % bytes_ + bytes > bytes_) from += bytes_ - from % bytes_;
    if (from + bytes - tail_ > bytes_) return std::nullopt;
    head_ = from + bytes;
    return Stretch{static_cast<uint32_t>(from % bytes_), head_};
  }
  // Frees the stretch and all those allocated before it.
  void give_back(const Stretch& stretch) { tail_ = stretch.end; }

 private:
  uint32_t bytes_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

}  // namespace verbena::transport
