// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>

#include "base/section_lock.h"

namespace verbena::memory {

// Who may be using what was found in a table without a lock: each thread in a section of one of these locks,
// of which each shard has one. What is found is used in the same section and not beyond it.
//
// So a table's writer makes an entry unreachable, waits until every section that was open has ended, and
// knows then that nobody has it any more. The readers pay nothing for it.
class Readers {
 public:
  static constexpr size_t kMax = 16;

  // REQUIRES: there are less than kMax. The lock stays until it is removed
  void add(const SectionLock& lock) { replace(nullptr, &lock); }
  // REQUIRES: nobody waits, or reads under this lock, any more
  void remove(const SectionLock& lock) { replace(&lock, nullptr); }

  // REQUIRES: the caller is in no section of any of them, and holds nothing that one in a section may want
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
