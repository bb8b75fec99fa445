// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
// GCC 12 warns of an uninitialized register in its own header (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <array>

#include "wire/roce/crc_kernels.h"
#include "wire/roce/crc_pclmul.h"

// The 512-bit kernel: VPCLMULQDQ with AVX-512 and VBMI2 (Intel since Ice Lake, AMD since Zen 4).
//
// The odd bytes are processed first: zeros in front of a message change nothing. So a first block of 1 to 64
// bytes, moved to the end of a register, leaves only full blocks.
#define VERBENA_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi2,vpclmulqdq,pclmul,sse4.1,bmi2")))
#define VERBENA_AVX512_INLINE                                                                   \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi2,vpclmulqdq,pclmul,sse4.1,bmi2"), \
                 always_inline)) inline

namespace verbena::roce::crc {
namespace {

constexpr size_t kBlock = 64;
constexpr size_t kLanes = 8;                  // blocks folded in parallel, to hide the multiplier's latency
constexpr size_t kProducts = 2 * kLanes - 1;  // maximum number of blocks left for the end

// For each 64-bit word of the last kProducts blocks, the factor that brings it to the position which
// reduce96() expects. So the end of a message is not folded block by block, but multiplied and summed at
// once.
constexpr auto kFinalFactors = []() consteval {
  std::array<uint64_t, 8 * kProducts> factors{};
  for (size_t i = 0; i < factors.size(); ++i) {
    factors[i] = x_to(static_cast<int64_t>(64 * (factors.size() - 1 - i) + 31));
  }
  return factors;
}
();

VERBENA_AVX512_INLINE __m512i xor3(__m512i a, __m512i b, __m512i c) {
  return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}

VERBENA_AVX512_INLINE __m512i fold64(__m512i a, __m512i factors, __m512i b) {
  return xor3(_mm512_clmulepi64_epi128(a, factors, 0x00), _mm512_clmulepi64_epi128(a, factors, 0x11), b);
}

template <bool kCopy>
VERBENA_AVX512_INLINE __m512i move64(std::byte* to, const std::byte* from) {
  __m512i value = _mm512_loadu_si512(from);
  asm("" : "+v"(value));
  if constexpr (kCopy) _mm512_storeu_si512(to, value);
  return value;
}

// Adds to `sum` the products of block `a`, the first of the last `left` blocks of the message. REQUIRES: 1 <=
// left <= kProducts
VERBENA_AVX512_INLINE __m512i add_products(__m512i sum, __m512i a, size_t left) {
  return fold64(a, _mm512_loadu_si512(&kFinalFactors[8 * (kProducts - left)]), sum);
}

VERBENA_AVX512_INLINE uint32_t reduce_products(__m512i a) {
  const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
  return reduce96(_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

VERBENA_AVX512_INLINE __m512i state_vector(uint32_t state) {
  return _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state)));
}

// Processes 16 to 64 bytes as one block.
template <bool kCopy>
VERBENA_AVX512_INLINE uint32_t run_block(uint32_t state, std::byte* to, const std::byte* from, size_t size) {
  const __mmask64 low = ~uint64_t{0} >> (kBlock - size);
  __m512i value = _mm512_maskz_loadu_epi8(low, from);
  asm("" : "+v"(value));
  if constexpr (kCopy) _mm512_mask_storeu_epi8(to, low, value);
  const __m512i at_end =
      _mm512_maskz_expand_epi8(low << (kBlock - size), _mm512_xor_si512(value, state_vector(state)));
  return reduce_products(add_products(_mm512_setzero_si512(), at_end, 1));
}

template <bool kCopy>
VERBENA_AVX512 uint32_t run_avx512(uint32_t state, std::byte* to, const std::byte* from, size_t size) {
  if (size < 16) return run_short<kCopy>(state, to, from, size);
  if (size <= kBlock) return run_block<kCopy>(state, to, from, size);

  // The first 1 to 64 bytes. A whole block is loaded and stored; the next block overlaps it, and overlapping
  // bytes count and are stored as part of the next. State bytes that exceed this block are added to the next.
  const size_t first = (size - 1) % kBlock + 1;
  const __mmask64 at_end = ~uint64_t{0} << (kBlock - first);
  __m512i a = move64<kCopy>(to, from);
  a = _mm512_maskz_expand_epi8(at_end, _mm512_xor_si512(a, state_vector(state)));
  from += first;
  if constexpr (kCopy) to += first;
  __m512i second = move64<kCopy>(to, from);
  second = _mm512_xor_si512(second, state_vector(first < 4 ? state >> 8 * first : 0));
  from += kBlock;
  if constexpr (kCopy) to += kBlock;
  size_t left = (size - first) / kBlock - 1;  // blocks from here on

  __m512i sum = _mm512_setzero_si512();
  if (left + 2 <= kProducts) {
    sum = add_products(add_products(sum, a, left + 2), second, left + 1);
  } else {
    const __m512i by_lanes = _mm512_broadcast_i32x4(fold_factors<512 * kLanes>());
    __m512i b[kLanes] = {a, second};
#pragma GCC unroll 8
    for (size_t i = 2; i < kLanes; ++i) {
      b[i] = move64<kCopy>(to + (kCopy ? kBlock * (i - 2) : 0), from + kBlock * (i - 2));
    }
    from += kBlock * (kLanes - 2);
    if constexpr (kCopy) to += kBlock * (kLanes - 2);
    for (left -= kLanes - 2; left >= kLanes; left -= kLanes) {
#pragma GCC unroll 8
      for (size_t i = 0; i < kLanes; ++i) {
        b[i] = fold64(b[i], by_lanes, move64<kCopy>(to + (kCopy ? kBlock * i : 0), from + kBlock * i));
      }
      from += kBlock * kLanes;
      if constexpr (kCopy) to += kBlock * kLanes;
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < kLanes; ++i) sum = add_products(sum, b[i], left + kLanes - i);
  }
  for (; left > 0; --left, from += kBlock) {
    sum = add_products(sum, move64<kCopy>(to, from), left);
    if constexpr (kCopy) to += kBlock;
  }
  return reduce_products(sum);
}

VERBENA_AVX512 uint32_t update_avx512(uint32_t state, const std::byte* from, size_t size) {
  return run_avx512<false>(state, nullptr, from, size);
}

VERBENA_AVX512 uint32_t multiply_avx512(uint32_t a, uint32_t b) {
  return clmul_multiply(a, b);
}

bool avx512_usable() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi2") &&
         __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("bmi2");
}

}  // namespace

constinit const Kernel kAvx512Kernel{"VPCLMULQDQ, 512 bits", avx512_usable, update_avx512, run_avx512<true>,
                                     multiply_avx512};

}  // namespace verbena::roce::crc
#endif
