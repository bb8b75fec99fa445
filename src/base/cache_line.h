// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace verbena {

// The cache line size in bytes. Two processors cannot write to one line at the same time. Data that is
// written for each message begins on a line of its own, alignas(kCacheLine), so that unrelated threads do not
// wait for each other (false sharing).
//
// (std::hardware_destructive_interference_size depends on compiler options and may differ between two files
// of one program.)
inline constexpr size_t kCacheLine = 64;

// Prefetches a cache line for writing, so that the write need not wait until another processor gives the line
// up.
inline void prefetch_for_write(const void* line) {
#if defined(__x86_64__)
  // For baseline x86-64, __builtin_prefetch() with write intent compiles to a prefetch for reading.
  // Processors without PREFETCHW treat it as a no-operation.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace verbena
