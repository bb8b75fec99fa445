// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena {

// Generates pseudo-random numbers by xoshiro256**: small, fast, and the same sequence from the same seed
// everywhere. Not for secrets, which need getrandom(2).
class Random {
 public:
  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) {  // splitmix64 spreads any seed, 0 included
      seed += 0x9e3779b97f4a7c15;
      uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      word = z ^ (z >> 31);
    }
  }

  uint64_t next() {
    const uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return result;
  }

  // Returns a number uniformly distributed in [0, bound). REQUIRES: bound > 0
  uint64_t below(uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

  // Returns true once in `out_of` calls on average; never if `out_of` is 0.
  bool one_in(uint64_t out_of) { return out_of != 0 && below(out_of) == 0; }

 private:
  static uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

  uint64_t state_[4];
};

}  // namespace verbena
