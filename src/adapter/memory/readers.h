// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>

#include "base/section_lock.h"

namespace verbena::memory {

// Waits for threads that may use entries of a table which they found without the table's lock. Each such
// thread is in a section of one of the added locks (base/section_lock.h), one per shard. It uses an entry
// only in the section in which it found the entry.
//
// A writer makes an entry unreachable, and waits until every section that was open has ended. After that
// nobody uses the entry any more. Readers pay nothing for this.
class Readers {
 public:
  static constexpr size_t kMax = 16;

  // Adds a shard's lock, which must live until remove(). REQUIRES: fewer than kMax locks are there
  void add(const SectionLock& lock) { replace(nullptr, &lock); }
  // Removes a lock. REQUIRES: no thread is in await(), or in a section of this lock
  void remove(const SectionLock& lock) { replace(&lock, nullptr); }

  // Waits until every section that is open now has ended. REQUIRES: the caller is in no section of these
  // locks, and holds nothing that a thread in a section may wait for
  void await() const {
    for (const auto& place : locks_) {
      if (const SectionLock* lock = place.load(std::memory_order_seq_cst)) lock->await_section();
    }
  }

 private:
  void replace(const SectionLock* old, const SectionLock* with) {
    for (auto& place : locks_) {
      const SectionLock* expected = old;
      if (place.compare_exchange_strong(expected, with, std::memory_order_seq_cst)) return;
    }
    std::abort();
  }

  std::array<std::atomic<const SectionLock*>, kMax> locks_{};
};

}  // namespace verbena::memory
