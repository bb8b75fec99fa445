// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "adapter/memory/key_table.h"
#include "base/cache_line.h"

namespace verbena::memory {

// Looks up keys in a KeyTable, with a cache of kRemembered openings: callers mostly use the same few keys. A
// change of the table invalidates the cache. For one thread at a time, in reader sections as with
// KeyTable::open(). A section that begins after a change of the table sees the change.
class KeyFinder {
 public:
  // REQUIRES: the table outlives this; null only if find() is never called
  explicit KeyFinder(const KeyTable* table) : table_(table) {}

  // Returns the opening of exactly this key, valid until the next call. Returns nullptr if there is no such
  // key.
  const Opening* find(uint32_t key) {
    // Read first, so that the result of a lookup is no older.
    const uint64_t changes = table_->changes();
    Remembered& known = remembered_[(key >> 8) % kRemembered];
    if (known.changes == changes && known.opening.key == key) [[likely]]
      return &known.opening;
    return look_up(key, changes, known);
  }

 private:
  static constexpr size_t kRemembered = 4;
  static constexpr uint64_t kNothing = UINT64_MAX;  // changes() never gets there
  struct alignas(kCacheLine) Remembered {
    uint64_t changes = kNothing;
    Opening opening;
  };
  static_assert(sizeof(Remembered) == kCacheLine);

  const Opening* look_up(uint32_t key, uint64_t changes, Remembered& known) const;

  const KeyTable* table_;
  std::array<Remembered, kRemembered> remembered_;
};

}  // namespace verbena::memory
