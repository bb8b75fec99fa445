// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>

namespace verbena {

struct SipKey {
  uint64_t low = 0;
  uint64_t high = 0;
};

// Returns SipHash-2-4 (Aumasson and Bernstein, 2012) of the eight bytes of `word`, little endian. A keyed
// hash: known pairs of words and hashes reveal nothing about the key or other hashes.
constexpr uint64_t siphash(const SipKey& key, uint64_t word) {
  uint64_t v0 = key.low ^ 0x736f6d6570736575;
  uint64_t v1 = key.high ^ 0x646f72616e646f6d;
  uint64_t v2 = key.low ^ 0x6c7967656e657261;
  uint64_t v3 = key.high ^ 0x7465646279746573;
  const auto mix_rounds = [&](int rounds) {
    while (rounds-- > 0) {
      v0 += v1;
      v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1;
      v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  };
  constexpr uint64_t kEnd = uint64_t{sizeof word} << 56;  // the last block: the length alone
  for (const uint64_t block : {word, kEnd}) {
    v3 ^= block;
    mix_rounds(2);
    v0 ^= block;
  }
  v2 ^= 0xff;
  mix_rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace verbena
