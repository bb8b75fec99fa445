// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "wire/roce/crc_kernels.h"
#include "wire/roce/crc_pclmul.h"

// The 128-bit kernel (PCLMULQDQ, any x86 since 2010) and the 256-bit one (VPCLMULQDQ without AVX-512).
namespace verbena::roce::crc {
namespace {

template <bool kCopy>
__attribute__((target("sse4.1,pclmul"))) uint32_t run_pclmul(uint32_t state, std::byte* to,
                                                             const std::byte* from, size_t size) {
  if (size < 16) return run_short<kCopy>(state, to, from, size);
  __m128i previous = load16(from);
  __m128i a = _mm_xor_si128(previous, _mm_cvtsi32_si128(static_cast<int>(state)));
  if constexpr (kCopy) store16(to, previous);
  size_t done = 16;
  if (size >= 128) {
    // Four blocks in parallel: the multiplier accepts new factors long before a product is ready.
    __m128i b[4] = {a};
#pragma GCC unroll 4
    for (size_t i = 1; i < 4; ++i) {
      b[i] = load16(from + 16 * i);
      if constexpr (kCopy) store16(to + 16 * i, b[i]);
    }
    for (done = 64; size - done >= 64; done += 64) {
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) {
        previous = load16(from + done + 16 * i);
        if constexpr (kCopy) store16(to + done + 16 * i, previous);
        b[i] = fold(b[i], fold_factors<512>(), previous);
      }
    }
    const __m128i one = fold(b[0], fold_factors<128>(), b[1]);
    a = fold(fold(one, fold_factors<128>(), b[2]), fold_factors<128>(), b[3]);
  }
  return run_rest<kCopy>(a, previous, to + (kCopy ? done : 0), from + done, size - done);
}

__attribute__((target("sse4.1,pclmul"))) uint32_t update_pclmul(uint32_t state, const std::byte* from,
                                                                size_t size) {
  return run_pclmul<false>(state, nullptr, from, size);
}

__attribute__((target("sse4.1,pclmul"))) uint32_t multiply_pclmul(uint32_t a, uint32_t b) {
  return clmul_multiply(a, b);
}

bool pclmul_usable() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("pclmul");
}

#define VERBENA_AVX2 __attribute__((target("avx2,sse4.1,pclmul,vpclmulqdq")))
#define VERBENA_AVX2_INLINE __attribute__((target("avx2,sse4.1,pclmul,vpclmulqdq"), always_inline)) inline

template <bool kCopy>
VERBENA_AVX2_INLINE __m256i move32(std::byte* to, const std::byte* from) {
  __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  asm("" : "+x"(value));
  if constexpr (kCopy) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
  return value;
}

VERBENA_AVX2_INLINE __m256i fold32(__m256i a, __m256i factors, __m256i b) {
  const __m256i low = _mm256_clmulepi64_epi128(a, factors, 0x00);
  const __m256i high = _mm256_clmulepi64_epi128(a, factors, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(low, high), b);
}

template <bool kCopy>
VERBENA_AVX2 uint32_t run_avx2(uint32_t state, std::byte* to, const std::byte* from, size_t size) {
  if (size < 16) return run_short<kCopy>(state, to, from, size);
  if (size < 256) {
    const __m128i previous = load16(from);
    if constexpr (kCopy) {
      store16(to, previous);
      to += 16;
    }
    const __m128i a = _mm_xor_si128(previous, _mm_cvtsi32_si128(static_cast<int>(state)));
    return run_rest<kCopy>(a, previous, to, from + 16, size - 16);
  }
  const __m256i by128 = _mm256_broadcastsi128_si256(fold_factors<1024>());
  const __m256i by32 = _mm256_broadcastsi128_si256(fold_factors<256>());
  __m256i b[4];
  __m256i previous = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) b[i] = move32<kCopy>(to + (kCopy ? 32 * i : 0), from + 32 * i);
  b[0] = _mm256_xor_si256(b[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(state))));
  size_t done = 128;
  for (; size - done >= 128; done += 128) {
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      const size_t at = done + 32 * i;
      previous = move32<kCopy>(to + (kCopy ? at : 0), from + at);
      b[i] = fold32(b[i], by128, previous);
    }
  }
  const __m256i halves = fold32(fold32(fold32(b[0], by32, b[1]), by32, b[2]), by32, b[3]);
  const __m128i a =
      fold(_mm256_castsi256_si128(halves), fold_factors<128>(), _mm256_extracti128_si256(halves, 1));
  return run_rest<kCopy>(a, _mm256_extracti128_si256(previous, 1), to + (kCopy ? done : 0), from + done,
                         size - done);
}

VERBENA_AVX2 uint32_t update_avx2(uint32_t state, const std::byte* from, size_t size) {
  return run_avx2<false>(state, nullptr, from, size);
}

VERBENA_AVX2 uint32_t multiply_avx2(uint32_t a, uint32_t b) {
  return clmul_multiply(a, b);
}

bool avx2_usable() {
  return pclmul_usable() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
}

}  // namespace

constinit const Kernel kPclmulKernel{"PCLMULQDQ", pclmul_usable, update_pclmul, run_pclmul<true>,
                                     multiply_pclmul};
constinit const Kernel kAvx2Kernel{"VPCLMULQDQ, 256 bits", avx2_usable, update_avx2, run_avx2<true>,
                                   multiply_avx2};

}  // namespace verbena::roce::crc
#endif
