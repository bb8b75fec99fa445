// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/siphash.h"

namespace verbena::memory {

// Spreads every input bit over the whole output (the finalizer of splitmix64).
constexpr uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// A permutation of the numbers of `bits` bits: a Feistel network, which is a permutation for every round
// function scramble(round, half). With four rounds it looks random if that function does (Luby and Rackoff);
// two more are for numbers as short as these.
template <uint32_t bits, class Scramble>
constexpr uint32_t permute_by(uint32_t value, Scramble scramble) {
  static_assert(bits % 2 == 0 && bits <= 32);
  constexpr uint32_t kHalf = bits / 2;
  constexpr uint32_t kMask = (1u << kHalf) - 1;
  uint32_t left = value >> kHalf;
  uint32_t right = value & kMask;
  for (uint64_t round = 0; round < 6; ++round) {
    const uint32_t next = left ^ (static_cast<uint32_t>(scramble(round, right)) & kMask);
    left = right;
    right = next;
  }
  return left << kHalf | right;
}

// The permutation that the key selects. Knowing some of its values reveals nothing of the others.
template <uint32_t bits>
constexpr uint32_t permute(uint32_t value, const SipKey& key) {
  return permute_by<bits>(value,
                          [&](uint64_t round, uint32_t half) { return siphash(key, round << 32 | half); });
}

// Like permute() above, but faster: for a secret that nothing else uses.
template <uint32_t bits>
constexpr uint32_t permute(uint32_t value, uint64_t secret) {
  return permute_by<bits>(value,
                          [=](uint64_t round, uint32_t half) { return mix(mix(secret + round) ^ half); });
}

}  // namespace verbena::memory
