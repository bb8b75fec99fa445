// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "adapter/shm/layout.h"

namespace verbena::shm {

// How a process that is at another's memory by itself, and the owner of that memory, know of each other.
//
// The visitor says in its lane that it is there, looks at the owner's board whether it may, does what it came
// for, and says that it has left. The owner first changes its board, then looks who is there, and waits until
// they have left. So either the visitor sees the changed board, or the owner sees the visitor: on both sides
// there is a full fence between the two. A visit that begins later finds the changed board.

// The visitor's side. One thread at a time.
template <class Format>
class BasicVisits {
 public:
  // `said`: what in_access is. Whatever visit that was is over.
  BasicVisits(BasicLane<Format>& lane, uint32_t said) : lane_(lane), count_(said & ~1u) {}

  // Runs visit(), which looks at the board first, by sequentially consistent loads, and answers what it did.
  // False: the owner takes no visitors any more.
  template <class Visit>
  bool run(Visit visit) {
    lane_.in_access.store(count_ + 1, std::memory_order_seq_cst);
    const bool done = lane_.refuses_access.load(std::memory_order_seq_cst) == 0 && visit();
    count_ += 2;
    lane_.in_access.store(count_, std::memory_order_release);
    return done;
  }

 private:
  BasicLane<Format>& lane_;
  uint32_t count_;  // of visits, by two
};

using Visits = BasicVisits<LaneFormat>;

// The owner's side; Format::full_fence() stands between what it changes and what it asks.

// The visit that is under way, or 0. It is over when there is another.
template <class Format>
uint32_t visit_under_way(const BasicLane<Format>& lane) {
  const uint32_t said = lane.in_access.load(std::memory_order_seq_cst);
  return (said & 1) != 0 ? said : 0;
}

// From now on no visit begins. The one that is under way may go on.
template <class Format>
void refuse_visits(BasicLane<Format>& lane) {
  lane.refuses_access.store(1, std::memory_order_seq_cst);
}

}  // namespace verbena::shm
