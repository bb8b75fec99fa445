// SPDX-License-Identifier: Apache-2.0
// A program with an allocator of its own that lacks some of the C library's functions. Its free() must get
// only its own blocks. Exits with 0 if the preload has not interposed anything.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static char memory[64 << 20];
static size_t used;
static int strangers;  // freed blocks that are not from this allocator

void* malloc(size_t bytes) {
  size_t* const block = (size_t*)(memory + used);
  const size_t all = (bytes + 2 * sizeof(size_t) + 15) / 16 * 16;
  if (all < bytes || all > sizeof memory - used) return NULL;
  used += all;
  *block = bytes;
  return (char*)block + 16;
}

void free(void* at) {
  if (at != NULL && ((char*)at < memory || (char*)at >= memory + sizeof memory)) ++strangers;
}

void* calloc(size_t count, size_t bytes) {
  return malloc(count * bytes);  // the memory is fresh, hence zero
}

void* realloc(void* at, size_t bytes) {
  void* const block = malloc(bytes);
  if (at != NULL && block != NULL) {
    const size_t had = *(size_t*)((char*)at - 16);
    memcpy(block, at, had < bytes ? had : bytes);
  }
  return block;
}

int main(void) {
  char* volatile large = malloc(1 << 20);
  large[5] = 'x';
  large = realloc(large, 2 << 20);
  if (large[5] != 'x') return 1;
  free(large);
  if (strangers != 0) return 2;
  void* aligned = NULL;
  if (posix_memalign(&aligned, 4096, 1 << 20) != 0) return 3;
  char line[512];
  FILE* const maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps) != NULL) {
    if (strstr(line, "/memfd:verbena") != NULL) return 4;
  }
  return 0;
}
