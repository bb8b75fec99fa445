// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace verbena::roce::crc {

// An implementation of the CRC-32. All kernels give the same results and differ in the instructions that they
// need. The functions have no state and own nothing, since a fault in the caller's memory may abandon them
// midway (adapter/memory/guarded.h). Any thread.
struct Kernel {
  const char* name;
  bool (*usable)();  // whether the processor and the operating system support the instructions

  uint32_t (*update)(uint32_t state, const std::byte* from, size_t size);

  // Copies and computes the CRC in one pass. Reads each source byte once, so the CRC matches the copied bytes
  // even if another thread changes the source meanwhile. With two reads, the response to an RDMA READ of
  // memory in use could carry a bad ICRC.
  uint32_t (*copy)(uint32_t state, std::byte* to, const std::byte* from, size_t size);

  // Returns the product of two residues modulo the CRC's polynomial (crc_polynomial.h).
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
