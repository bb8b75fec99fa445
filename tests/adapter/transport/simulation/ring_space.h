// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace verbena::transport {

// Hands out contiguous stretches of a buffer, first given, first given back.
class RingSpace {
 public:
  struct Stretch {
    uint32_t offset = 0;
    uint64_t end = 0;  // what give_back() takes
  };

  explicit RingSpace(uint32_t bytes) : bytes_(bytes) {}

  // Nothing when there is no room now. REQUIRES: bytes is at most half of the whole
  std::optional<Stretch> take(uint32_t bytes) {
    bytes = (bytes + 7) & ~7u;
    uint64_t from = head_;
    if (from % bytes_ + bytes > bytes_) from += bytes_ - from % bytes_;
    if (from + bytes - tail_ > bytes_) return std::nullopt;
    head_ = from + bytes;
    return Stretch{static_cast<uint32_t>(from % bytes_), head_};
  }
  // Gives back the stretch and those taken before it.
  void give_back(const Stretch& stretch) { tail_ = stretch.end; }

 private:
  uint32_t bytes_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

}  // namespace verbena::transport
