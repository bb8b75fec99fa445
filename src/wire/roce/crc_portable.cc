// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstring>

#include "wire/roce/crc_kernels.h"

namespace verbena::roce::crc {

constexpr Tables kTables = make_tables();

namespace {

static_assert(std::endian::native == std::endian::little);

// Processes sixteen bytes. Each goes through the table for the number of bytes that follow it.
uint32_t step16(uint32_t state, const uint32_t words[4]) {
  uint32_t next = 0;
  for (size_t word = 0; word < 4; ++word) {
    const uint32_t value = words[word] ^ (word == 0 ? state : 0);
    for (size_t byte = 0; byte < 4; ++byte) {
      next ^= kTables[15 - 4 * word - byte][value >> 8 * byte & 0xff];
    }
  }
  return next;
}

template <bool kCopy>
uint32_t run(uint32_t state, std::byte* to, const std::byte* from, size_t size) {
  for (; size >= 16; size -= 16, from += 16) {
    uint32_t words[4];
    std::memcpy(words, from, sizeof words);
    asm("" : "+m"(words));  // use these very bytes; do not read the source again
    if constexpr (kCopy) {
      std::memcpy(to, words, sizeof words);
      to += 16;
    }
    state = step16(state, words);
  }
  for (; size > 0; --size, ++from) {
    uint32_t byte = static_cast<uint8_t>(*from);
    asm("" : "+r"(byte));
    if constexpr (kCopy) *to++ = static_cast<std::byte>(byte);
    state = state >> 8 ^ kTables[0][(state ^ byte) & 0xff];
  }
  return state;
}

uint32_t update(uint32_t state, const std::byte* from, size_t size) {
  return run<false>(state, nullptr, from, size);
}

uint32_t multiply_bitwise(uint32_t a, uint32_t b) {
  return multiply(a, b);
}

}  // namespace

constinit const Kernel kPortableKernel{"portable", [] { return true; }, update, run<true>, multiply_bitwise};

}  // namespace verbena::roce::crc
