// SPDX-License-Identifier: Apache-2.0
#include "memory/placement.h"

#include <atomic>
#include <cstring>

#include "memory/guarded.h"

namespace verbena::memory {
namespace {

// The bare instruction: ThreadSanitizer's atomics take a lock around the access, and a fault would leave it
// held.
__attribute__((no_sanitize("thread"))) void store(uint64_t* word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

}  // namespace

bool write_word_guarded(std::byte* to, const std::byte* from) {
  uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return guarded([&] { store(reinterpret_cast<uint64_t*>(to), value); });
}

void make_visible() {
  // Our stores are coherent already; what is left is that none of them may be put off. (An operation, as
  // ThreadSanitizer knows no bare fences. On a number of this thread's own: other shards do the same.)
  static thread_local std::atomic<uint32_t> order{0};
  order.fetch_add(1, std::memory_order_seq_cst);
}

}  // namespace verbena::memory
