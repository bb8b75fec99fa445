// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "adapter/memory/key_table.h"
#include "base/cache_line.h"

namespace verbena::memory {

// Finds what keys open, for somebody who mostly asks for the same few: it remembers some, for as long as none
// of the table changes. One thread at a time, in sections of a reader as with KeyTable::open(): a section
// that begins after a change has been made sees that there was one.
class KeyFinder {
 public:
  // REQUIRES: it outlives this; null only where nothing is looked for
  explicit KeyFinder(const KeyTable* table) : table_(table) {}

  // What exactly this key opens now, until the next call; nullptr: there is no such key.
  const Opening* find(uint32_t key) {
    // Looked at first: what is looked up then is no older.
    const uint64_t changes = table_->changes();
    Remembered& known = remembered_[(key >> 8) % kRemembered];
    if (known.changes == changes && known.opening.key == key) [[likely]]
      return &known.opening;
    return look_up(key, changes, known);
  }

 private:
  static constexpr size_t kRemembered = 4;
  static constexpr uint64_t kNothing = UINT64_MAX;  // so many changes there never are
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
