// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/ordered_copy.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "adapter/memory/guarded.h"
#include "base/bulk_copy.h"

namespace verbena::memory {
namespace {

constexpr size_t kWord = sizeof(uint64_t);

// The bare instructions: ThreadSanitizer's atomics take a lock around the access, which a fault would leave
// locked.
template <class Word>
__attribute__((no_sanitize("thread"))) void store(std::byte* to, const std::byte* from) {
  Word value;
  std::memcpy(&value, from, sizeof value);
  __atomic_store_n(reinterpret_cast<Word*>(to), value, __ATOMIC_RELEASE);
}

// Ascending, each step as wide as its alignment allows: so a step is visible whole or not at all. Each
// release keeps earlier stores before it. On x86 this includes the string moves of memcpy(), which itself
// fences after streaming stores.
void copy_stepwise(std::byte* to, const std::byte* from, size_t bytes) {
  while (bytes > 0) {
    const size_t aligned = size_t{1} << std::countr_zero(reinterpret_cast<uintptr_t>(to) | kWord);
    const size_t step = std::min(aligned, std::bit_floor(bytes));
    switch (step) {
      case 8:
        store<uint64_t>(to, from);
        break;
      case 4:
        store<uint32_t>(to, from);
        break;
      case 2:
        store<uint16_t>(to, from);
        break;
      default:
        store<uint8_t>(to, from);
    }
    to += step;
    from += step;
    bytes -= step;
  }
}

void copy(std::byte* to, ConstBytes from) {
  if (from.empty()) return;
  const uintptr_t last = reinterpret_cast<uintptr_t>(to) + from.size() - 1;
  const size_t stepwise = std::min(from.size(), last % kWord + 1);  // bytes in the last word
  const size_t before = from.size() - stepwise;
  if (before > 0) copy_bulk(to, from.data(), before);
  copy_stepwise(to + before, from.data() + before, stepwise);
}

[[gnu::noinline]] bool copy_with_landing(std::byte* to, ConstBytes from) {
  return guarded([&] { copy(to, from); });
}

}  // namespace

bool copy_in_order_guarded(std::byte* to, ConstBytes from) {
  if (may_copy_small(from.size())) [[likely]]
    return copy_small(to, from);
  return copy_with_landing(to, from);
}

bool copy_pieces_in_order_guarded(std::byte* to, std::span<const ConstBytes> pieces) {
  return guarded([&] {
    std::byte* at = to;
    for (const ConstBytes piece : pieces) {
      copy(at, piece);
      at += piece.size();
    }
  });
}

bool scatter_guarded(std::span<const ConstBytes> pieces, const std::byte* from) {
  return guarded([&] {
    const std::byte* at = from;
    for (const ConstBytes piece : pieces) {
      copy_bulk(const_cast<std::byte*>(piece.data()), at, piece.size());
      at += piece.size();
    }
  });
}

}  // namespace verbena::memory
