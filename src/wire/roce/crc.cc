// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <bit>
#include <cstring>

#include "wire/roce/crc_kernels.h"
#include "wire/roce/icrc.h"

namespace verbena::roce {

static_assert(std::endian::native == std::endian::little);

namespace crc {

constexpr Tables kTables = make_tables();

namespace {

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

// The entry points are function pointers. Each initially refers to a function that chooses the kernel at the
// first call and stores all pointers. ifuncs would run before the library is relocated and before sanitizers
// are ready. Two threads may choose at the same time with the same result; only the pointers are published.
uint32_t first_update(uint32_t state, const std::byte* from, size_t size);
uint32_t first_copy(uint32_t state, std::byte* to, const std::byte* from, size_t size);
uint32_t first_multiply(uint32_t a, uint32_t b);

constinit std::atomic<decltype(Kernel::update)> chosen_update{first_update};
constinit std::atomic<decltype(Kernel::copy)> chosen_copy{first_copy};
constinit std::atomic<decltype(Kernel::multiply)> chosen_multiply{first_multiply};

constexpr const Kernel* kKernels[] = {
#if defined(__x86_64__)
    &kAvx512Kernel,
    &kAvx2Kernel,
    &kPclmulKernel,
#endif
    &kPortableKernel,
};

const Kernel& choose() {
  for (const Kernel* kernel : kKernels) {
    if (!kernel->usable()) continue;
    chosen_update.store(kernel->update, std::memory_order_relaxed);
    chosen_copy.store(kernel->copy, std::memory_order_relaxed);
    chosen_multiply.store(kernel->multiply, std::memory_order_relaxed);
    return *kernel;
  }
  __builtin_unreachable();  // the last kernel is always usable
}

uint32_t first_update(uint32_t state, const std::byte* from, size_t size) {
  return choose().update(state, from, size);
}
uint32_t first_copy(uint32_t state, std::byte* to, const std::byte* from, size_t size) {
  return choose().copy(state, to, from, size);
}
uint32_t first_multiply(uint32_t a, uint32_t b) {
  return choose().multiply(a, b);
}

}  // namespace

constinit const Kernel kPortableKernel{"portable", [] { return true; }, update, run<true>, multiply_bitwise};

std::span<const Kernel* const> kernels() {
  return kKernels;
}

uint32_t fast_multiply(uint32_t a, uint32_t b) {
  return chosen_multiply.load(std::memory_order_relaxed)(a, b);
}

}  // namespace crc

uint32_t crc_update(uint32_t state, ConstBytes data) {
  return crc::chosen_update.load(std::memory_order_relaxed)(state, data.data(), data.size());
}

uint32_t crc_update_word(uint32_t state, uint32_t word) {
  using crc::kTables;
  state ^= word;
  return kTables[3][state & 0xff] ^ kTables[2][state >> 8 & 0xff] ^ kTables[1][state >> 16 & 0xff] ^
         kTables[0][state >> 24];
}

uint32_t crc_of_zeros(uint32_t state, uint32_t bytes) {
  return crc::multiply(state, crc::x_to(8 * int64_t{bytes}));
}

uint32_t crc_copy(uint32_t state, std::byte* to, ConstBytes from) {
  return crc::chosen_copy.load(std::memory_order_relaxed)(state, to, from.data(), from.size());
}

}  // namespace verbena::roce
