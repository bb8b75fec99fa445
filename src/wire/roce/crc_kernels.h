// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

// Arithmetic for the CRC-32 of Ethernet and the ICRC: polynomials over GF(2), modulo P = x^32 + x^26 + x^23 +
// x^22 + x^16 + x^12 + x^11 + x^10 + x^8 + x^7 + x^5 + x^4 + x^2 + x + 1. Residues are stored reflected, as
// the CRC's state is: bit 31 is the coefficient of x^0, bit 0 that of x^31.
namespace verbena::roce::crc {

inline constexpr uint32_t kPolynomial = 0xedb88320;
inline constexpr uint32_t kOne = 0x80000000;  // x^0

constexpr uint32_t times_x(uint32_t a) {
  return (a >> 1) ^ ((a & 1) != 0 ? kPolynomial : 0);
}

// Returns a / x modulo P. x has an inverse because P has the constant term 1.
constexpr uint32_t over_x(uint32_t a) {
  return (a & kOne) != 0 ? (a ^ kPolynomial) << 1 | 1 : a << 1;
}

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; b != 0; b <<= 1) {
    if ((b & kOne) != 0) product ^= a;
    a = times_x(a);
  }
  return product;
}

// Returns x^n modulo P; n may be negative.
constexpr uint32_t x_to(int64_t n) {
  uint32_t square = n < 0 ? over_x(kOne) : times_x(kOne);
  uint32_t result = kOne;
  for (uint64_t left = n < 0 ? -static_cast<uint64_t>(n) : static_cast<uint64_t>(n); left != 0; left >>= 1) {
    if ((left & 1) != 0) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result;
}

// kTables[k][b]: the state after the byte b and k zero bytes. kTables[0] alone processes one byte per step;
// all sixteen tables process sixteen bytes per step.
using Tables = std::array<std::array<uint32_t, 256>, 16>;
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = times_x(state);
    tables[0][byte] = state;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t state = tables[k - 1][byte];
      tables[k][byte] = state >> 8 ^ tables[0][state & 0xff];
    }
  }
  return tables;
}
extern const Tables kTables;

// An implementation of the CRC-32. All kernels give the same results and differ in the instructions that they
// need. The functions have no state and own nothing, since a fault in the caller's memory may abandon them
// midway (adapter/memory/guarded.h). Any thread.
struct Kernel {
  const char* name;
  bool (*usable)();  // whether the processor and the operating system support the instructions

  // Returns the CRC state after the `size` bytes at `from`.
  uint32_t (*update)(uint32_t state, const std::byte* from, size_t size);

  // Copies `size` bytes, and returns the CRC state after them, in one pass. Reads each source byte once, so
  // the CRC matches the copied bytes even if another thread changes the source meanwhile. If the CRC and the
  // copy read the source separately, a response to an RDMA READ could have a bad ICRC.
  uint32_t (*copy)(uint32_t state, std::byte* to, const std::byte* from, size_t size);

  // Returns the product of two residues modulo the CRC's polynomial.
  uint32_t (*multiply)(uint32_t a, uint32_t b);
};

// All kernels, fastest first; the last one runs on every processor.
std::span<const Kernel* const> kernels();

extern const Kernel kPortableKernel;
#if defined(__x86_64__)
extern const Kernel kPclmulKernel;
extern const Kernel kAvx2Kernel;
extern const Kernel kAvx512Kernel;
#endif

// Returns a * b modulo the CRC's polynomial, by the kernel chosen for this machine.
uint32_t fast_multiply(uint32_t a, uint32_t b);

}  // namespace verbena::roce::crc
