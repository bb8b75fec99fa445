// SPDX-License-Identifier: Apache-2.0
// Usable from C, too.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

// Maps memory far from where other threads' mappings would replace it after it is unmapped. Returns as
// mmap(2) does.
static inline void* map_apart(size_t bytes) {
  void* const apart = (void*)((uintptr_t)0x5600 << 32);
  return mmap(apart, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
