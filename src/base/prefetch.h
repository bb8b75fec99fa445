// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena {

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
