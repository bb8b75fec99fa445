// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "wire/roce/crc_kernels.h"

// Common parts of the 128-, 256- and 512-bit CRC kernels for x86, which use carry-less multiplication.
//
// A block of the message, as loaded from memory, is a reflected polynomial: its first bit is the highest
// power. The product of two reflected 64-bit values has 127 bits, which lie at the low end of a 128-bit
// register. Read as a reflected 128-bit value, the register contains the product times x. To make up for this
// factor, every constant below has a power one lower than the textbook's.
//
// Folding moves a block D bits down the message, without changing the message modulo P. It multiplies each
// 64-bit half of the block by x^n modulo P. n is the distance in bits from the end of the half to the end of
// the block D bits further on. Each product has at most 96 bits. Both products are added (XOR) to that later
// block.
#define VERBENA_PCLMUL __attribute__((target("sse4.1,pclmul"), always_inline)) inline

namespace verbena::roce::crc {

// x^kPower modulo P as the high half of a 64-bit factor, for folding: the product keeps its position.
template <int64_t kPower>
inline constexpr uint64_t kFoldFactor = static_cast<uint64_t>(x_to(kPower)) << 32;
// x^kPower modulo P as the low half of a 64-bit factor. The product lies 32 bits lower in the register than
// with kFoldFactor, as reduce96() needs it.
template <int64_t kPower>
inline constexpr uint64_t kFinalFactor = x_to(kPower);

// The upper 64 coefficients of the quotient x^96 / P, reflected: Barrett's constant.
constexpr uint64_t quotient_of_x96() {
  uint64_t quotient = 0;
  uint32_t rest = kOne;  // long division: x^k modulo P; the coefficient carried out of x^31 is the next digit
  for (int k = 0; k < 96; ++k) {
    const uint64_t digit = rest & 1;
    rest = times_x(rest);
    // Digit number k-31 of 65, the highest first; the last one (k = 95) is left out.
    if (k >= 31 && k < 95) quotient |= digit << (k - 31);
  }
  return quotient;
}
inline constexpr uint64_t kQuotient = quotient_of_x96();
inline constexpr uint64_t kShiftedPolynomial = static_cast<uint64_t>(kPolynomial) << 1 | 1;

// Shuffle masks: sixteen bytes loaded from offset 16 - n or 16 + n move a register's bytes up or down by n.
alignas(64) inline constexpr uint8_t kShuffle[48] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};

// Moves the bytes of `a` by `places` toward the end of the message (up in the register), shifting in zeros.
// REQUIRES: places <= 16
VERBENA_PCLMUL __m128i move_up(__m128i a, size_t places) {
  return _mm_shuffle_epi8(a, _mm_loadu_si128(reinterpret_cast<const __m128i*>(kShuffle + 16 - places)));
}
// Moves the bytes of `a` by `places` toward the beginning of the message (down in the register), shifting in
// zeros. REQUIRES: places <= 16
VERBENA_PCLMUL __m128i move_down(__m128i a, size_t places) {
  return _mm_shuffle_epi8(a, _mm_loadu_si128(reinterpret_cast<const __m128i*>(kShuffle + 16 + places)));
}

// Loads sixteen bytes once: the asm statement keeps the compiler from loading them again. The bytes stored
// and the bytes fed to the CRC must be the same, even if another thread changes the source.
VERBENA_PCLMUL __m128i load16(const std::byte* from) {
  __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  asm("" : "+x"(value));
  return value;
}
template <class T>
inline __attribute__((always_inline)) T load_once(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  asm("" : "+r"(value));
  return value;
}
VERBENA_PCLMUL void store16(std::byte* to, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
}

// Folds block `a` by the distance of `factors` (fold_factors()) onto block `b`.
VERBENA_PCLMUL __m128i fold(__m128i a, __m128i factors, __m128i b) {
  const __m128i low = _mm_clmulepi64_si128(a, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(a, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), b);
}
template <int64_t kDistance>
VERBENA_PCLMUL __m128i fold_factors() {
  return _mm_set_epi64x(static_cast<int64_t>(kFoldFactor<kDistance - 1>),
                        static_cast<int64_t>(kFoldFactor<kDistance + 63>));
}

// Reduces a polynomial of 96 bits (its highest power in bit 0) modulo P, by Barrett's method: computes the
// quotient by P, multiplies it by P and subtracts the product. The quotient is exact. Polynomials have no
// carries, so the digits of x^96 / P that quotient_of_x96() leaves out only affect digits that are discarded.
VERBENA_PCLMUL uint32_t reduce96(__m128i a) {
  const __m128i constants =
      _mm_set_epi64x(static_cast<int64_t>(kShiftedPolynomial), static_cast<int64_t>(kQuotient));
  const __m128i quotient = _mm_clmulepi64_si128(a, constants, 0x00);
  const __m128i product = _mm_clmulepi64_si128(quotient, constants, 0x10);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(product, a), 2));
}

// Returns the CRC state after the sixteen bytes of `a`. REQUIRES: the previous state is already added to the
// first four bytes
VERBENA_PCLMUL uint32_t reduce128(__m128i a) {
  const __m128i factor = _mm_cvtsi64_si128(static_cast<int64_t>(kFinalFactor<95>));
  return reduce96(_mm_xor_si128(_mm_clmulepi64_si128(a, factor, 0x00), _mm_srli_si128(a, 8)));
}

// Processes fewer than sixteen bytes; fewer than four by a table. Otherwise adds the CRC state to the first
// four bytes of the message. Zeros in front of the result do not change its CRC, so the bytes are moved to
// the end of a register that is zero elsewhere.
template <bool kCopy>
VERBENA_PCLMUL uint32_t run_short(uint32_t state, std::byte* to, const std::byte* from, size_t size) {
  if (size >= 8) {
    // The last eight bytes overlap the first eight; overlapping bytes are taken from the first load.
    const size_t more = size - 8;
    const uint64_t first = load_once<uint64_t>(from);
    const uint64_t last = load_once<uint64_t>(from + more);
    const __m128i both =
        _mm_unpacklo_epi64(_mm_cvtsi64_si128(static_cast<int64_t>(first)),
                           move_down(_mm_cvtsi64_si128(static_cast<int64_t>(last)), 8 - more));
    if constexpr (kCopy) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to), both);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to + more), move_down(both, more));
    }
    return reduce128(move_up(_mm_xor_si128(both, _mm_cvtsi32_si128(static_cast<int>(state))), 16 - size));
  }
  if (size >= 4) {
    const size_t more = size - 4;
    const uint64_t first = load_once<uint32_t>(from);
    const uint64_t last = load_once<uint32_t>(from + more);
    const uint64_t both = first | last >> 8 * (4 - more) << 32;
    if constexpr (kCopy) {
      const auto low = static_cast<uint32_t>(both);
      const auto high = static_cast<uint32_t>(both >> 8 * more);
      std::memcpy(to, &low, sizeof low);
      std::memcpy(to + more, &high, sizeof high);
    }
    return reduce96(_mm_cvtsi64_si128(static_cast<int64_t>((both ^ state) << (64 - 8 * size))));
  }
  for (; size > 0; --size, ++from) {
    const auto byte = load_once<uint8_t>(from);
    if constexpr (kCopy) *to++ = static_cast<std::byte>(byte);
    state = state >> 8 ^ kTables[0][(state ^ byte) & 0xff];
  }
  return state;
}

// Processes the last `size` bytes of a message, which begin at `from`. `a`: the block into which all earlier
// bytes are folded. `previous`: the sixteen bytes before `from`, as loaded.
template <bool kCopy>
VERBENA_PCLMUL uint32_t run_rest(__m128i a, __m128i previous, std::byte* to, const std::byte* from,
                                 size_t size) {
  for (; size >= 16; size -= 16, from += 16) {
    previous = load16(from);
    if constexpr (kCopy) {
      store16(to, previous);
      to += 16;
    }
    a = fold(a, fold_factors<128>(), previous);
  }
  if (size == 0) return reduce128(a);
  // Loads the last sixteen bytes of the message, of which only `size` are new. The other bytes of this block
  // are replaced: for the CRC by bytes of `a`, for the copy by bytes of `previous`.
  const __m128i last = load16(from + size - 16);
  const __m128i is_new = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kShuffle + 16 + size));
  if constexpr (kCopy) {
    store16(to + size - 16, _mm_blendv_epi8(_mm_shuffle_epi8(previous, is_new), last, is_new));
  }
  return reduce128(fold(move_up(a, 16 - size), fold_factors<128>(),
                        _mm_blendv_epi8(_mm_shuffle_epi8(a, is_new), last, is_new)));
}

VERBENA_PCLMUL uint32_t clmul_multiply(uint32_t a, uint32_t b) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(a)),
                                               _mm_cvtsi32_si128(static_cast<int>(b)), 0x00);
  // The product has x^62 in bit 0; reduce96() expects x^95 there.
  const auto bits = static_cast<uint64_t>(_mm_cvtsi128_si64(product));
  return reduce96(_mm_set_epi64x(static_cast<int64_t>(bits >> 31), static_cast<int64_t>(bits << 33)));
}

}  // namespace verbena::roce::crc
