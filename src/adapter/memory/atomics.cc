// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/atomics.h"

#include "adapter/memory/guarded.h"

namespace verbena::memory {
namespace {

// The bare instructions: ThreadSanitizer's atomics take a lock around the access, which a fault would leave
// locked.
__attribute__((no_sanitize("thread"))) uint64_t fetch_add(uint64_t* word, uint64_t addend) {
  return __atomic_fetch_add(word, addend, __ATOMIC_SEQ_CST);
}

// Needs write permission even if the comparison fails, as the locked instruction does.
__attribute__((no_sanitize("thread"))) uint64_t compare_swap(uint64_t* word, uint64_t expected,
                                                             uint64_t desired) {
  __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;  // the previous value, equal or not
}

}  // namespace

std::optional<uint64_t> fetch_add_guarded(std::byte* address, uint64_t addend) {
  uint64_t original = 0;
  auto* word = reinterpret_cast<uint64_t*>(address);
  if (!guarded([&] { original = fetch_add(word, addend); })) return std::nullopt;
  return original;
}

std::optional<uint64_t> compare_swap_guarded(std::byte* address, uint64_t expected, uint64_t desired) {
  uint64_t original = 0;
  auto* word = reinterpret_cast<uint64_t*>(address);
  if (!guarded([&] { original = compare_swap(word, expected, desired); })) return std::nullopt;
  return original;
}

}  // namespace verbena::memory
