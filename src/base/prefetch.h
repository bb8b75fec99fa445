// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena {

// Has the processor fetch a cache line that is soon to be written, so that the write need not wait until
// another processor has given it away.
inline void prefetch_for_write(const void* line) {
#if defined(__x86_64__)
  // What the compiler makes of __builtin_prefetch() for the least of these processors fetches it for reading.
  // Those that do not know this instruction take it for a no-operation.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

inline void prefetch_for_read(const void* line) {
  __builtin_prefetch(line);
}

}  // namespace verbena
