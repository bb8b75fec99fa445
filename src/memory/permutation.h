// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::memory {

// Spreads every bit of the input over all of the output (the finalizer of splitmix64).
constexpr uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// A permutation of the numbers of `bits` bits, one of many picked by the secret: a Feistel network, which is
// one whatever its round function. Four rounds make it look random (Luby and Rackoff); more cost nothing
// here.
template <uint32_t bits>
constexpr uint32_t permute(uint32_t value, uint64_t secret) {
  static_assert(bits % 2 == 0 && bits <= 32);
  constexpr uint32_t kHalf = bits / 2;
  constexpr uint32_t kMask = (1u << kHalf) - 1;
  uint32_t left = value >> kHalf;
  uint32_t right = value & kMask;
  for (uint64_t round = 0; round < 6; ++round) {
    const auto scrambled = static_cast<uint32_t>(mix(mix(secret + round) ^ right)) & kMask;
    const uint32_t next = left ^ scrambled;
    left = right;
    right = next;
  }
  return left << kHalf | right;
}

}  // namespace verbena::memory
