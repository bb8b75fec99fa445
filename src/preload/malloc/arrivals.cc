// SPDX-License-Identifier: Apache-2.0
#include "preload/malloc/arrivals.h"

#include <cstdlib>

#include <malloc.h>

namespace verbena::heap {
namespace {

constexpr unsigned kAll = 15;

constinit bool looking = false;
constinit unsigned seen = 0;

// Volatile, so that the compiler does not optimize these calls away: it knows what the functions do with a
// null pointer.
void (*volatile call_free)(void*) = ::free;
void* (*volatile call_realloc)(void*, size_t) = ::realloc;
void* (*volatile call_realloc_array)(void*, size_t, size_t) = ::reallocarray;
size_t (*volatile call_usable_size)(void*) = ::malloc_usable_size;

}  // namespace

void note_arrival(Arrival arrival) {
  if (looking) [[unlikely]]
    seen |= static_cast<unsigned>(arrival);
}

bool all_arrive_here() {
  looking = true;
  call_free(nullptr);
  call_usable_size(nullptr);
  void* const one = call_realloc(nullptr, 1);
  void* const other = call_realloc_array(nullptr, 1, 1);
  looking = false;
  if (seen != kAll) return false;  // leaks two small blocks: their allocator is not known
  call_free(one);
  call_free(other);
  return true;
}

}  // namespace verbena::heap
