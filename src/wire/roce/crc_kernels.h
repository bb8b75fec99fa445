// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace verbena::roce::crc {

// One way to compute the CRC. All of them give the same answers; they differ in the instructions they need.
// The functions hold no state and own nothing, so that a fault in the caller's memory may abandon them midway
// (adapter/memory/guarded.h), and may run in any thread.
struct Kernel {
  const char* name;
  bool (*usable)();  // does this processor, under this system, have the instructions?

  uint32_t (*update)(uint32_t state, const std::byte* from, size_t size);

  // Each source byte is taken once: the CRC is that of the bytes written, even when another thread changes
  // the source meanwhile. An RDMA READ of memory in use must not leave with a bad ICRC.
  uint32_t (*copy)(uint32_t state, std::byte* to, const std::byte* from, size_t size);

  // The product of two residues modulo the polynomial.
  uint32_t (*multiply)(uint32_t a, uint32_t b);
};

// Fastest first; the last one runs everywhere.
std::span<const Kernel* const> kernels();

extern const Kernel kPortableKernel;
#if defined(__x86_64__)
extern const Kernel kPclmulKernel;
extern const Kernel kAvx2Kernel;
extern const Kernel kAvx512Kernel;
#endif

// a * b modulo the polynomial, by the kernel chosen for this machine.
uint32_t fast_multiply(uint32_t a, uint32_t b);

}  // namespace verbena::roce::crc
