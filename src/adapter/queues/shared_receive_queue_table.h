// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "adapter/queues/shared_receive_queue.h"
#include "base/result.h"

namespace verbena::queues {

// Finds a process's shared receive queues for XRC by their SRQ numbers. A number has 24 bits: a slot of the
// process and an index, like a QPN. The slot tells other processes which process owns the queue. For the
// holder of the lock of the shard with this slot.
class SharedReceiveQueueTable {
 public:
  static constexpr uint32_t kIndexBits = 14;
  static constexpr uint32_t kMax = 1u << kIndexBits;

  explicit SharedReceiveQueueTable(uint32_t slot) : slot_(slot) {}

  // Reserves a number that no queue has, and that was unused for as long as possible; never 0. Errors: ENOMEM
  // if all numbers are reserved.
  Result<uint32_t> reserve() {
    if (entries_.empty()) entries_.resize(kMax);
    for (uint32_t tried = 0; tried < kMax; ++tried) {
      next_ = (next_ + 1) % kMax;
      const uint32_t number = slot_ << kIndexBits | next_;
      if (number == 0 || entries_[next_].reserved) continue;
      entries_[next_].reserved = true;
      return number;
    }
    return fail(ENOMEM);
  }
  // Adds a queue, whose number was reserved.
  void add(SharedReceiveQueue& queue) { entries_[queue.number() % kMax].queue = &queue; }
  void remove(uint32_t number) { entries_[number % kMax] = {}; }

  static uint32_t slot_of(uint32_t number) { return number >> kIndexBits; }
  // Whether the number belongs to this process; the queue need not exist.
  bool is_own(uint32_t number) const { return slot_of(number) == slot_; }

  SharedReceiveQueue* find(uint32_t number) const {
    if (!is_own(number) || entries_.empty()) return nullptr;
    return entries_[number % kMax].queue;
  }

 private:
  struct Entry {
    SharedReceiveQueue* queue = nullptr;
    bool reserved = false;
  };
  const uint32_t slot_;
  uint32_t next_ = 0;
  std::vector<Entry> entries_;  // empty until the first reserve()
};

}  // namespace verbena::queues
