// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace verbena::soak {

// A pseudo-random sequence, determined by its seed. It is fast enough to generate and compare bytes at the
// rate of memory.
class Sequence {
 public:
  // Mixes the seed, so that neighbouring seeds give unrelated sequences.
  explicit Sequence(uint64_t seed) : state_(seed) { state_ = next(); }
  uint64_t next() {
    state_ += 0x9e37'79b9'7f4a'7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9;
    z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11eb;
    return z ^ (z >> 31);
  }
  // Returns a number in [0, end). REQUIRES: end > 0.
  uint32_t below(uint32_t end) { return static_cast<uint32_t>(next() % end); }
  bool one_in(uint32_t n) { return below(n) == 0; }

 private:
  uint64_t state_;
};

inline void fill(std::span<std::byte> to, uint64_t seed) {
  Sequence bytes(seed);
  while (!to.empty()) {
    const uint64_t word = bytes.next();
    const size_t part = to.size() < sizeof word ? to.size() : sizeof word;
    std::memcpy(to.data(), &word, part);
    to = to.subspan(part);
  }
}

inline bool is_filled(std::span<const std::byte> from, uint64_t seed) {
  Sequence bytes(seed);
  while (!from.empty()) {
    const uint64_t word = bytes.next();
    const size_t part = from.size() < sizeof word ? from.size() : sizeof word;
    if (std::memcmp(from.data(), &word, part) != 0) return false;
    from = from.subspan(part);
  }
  return true;
}

}  // namespace verbena::soak
