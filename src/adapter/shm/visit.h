// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "adapter/shm/layout.h"

namespace verbena::shm {

// An access guard: tells the owner of memory when another process (the visitor) accesses that memory
// directly. One such access is a visit.
//
// The visitor says in its lane that a visit begins, checks the owner's export table (board), accesses the
// memory, and says that the visit has ended. To revoke a right, the owner first changes its board, then looks
// for visits, and waits until they have ended. On each side, a full fence lies between the first two of these
// steps. So either the visitor sees the changed board, or the owner sees the visit. A visit that begins later
// sees the changed board.

// The visitor's side. One thread at a time.
template <class Format>
class BasicVisits {
 public:
  // `said`: the current value of in_access. A visit that it says is under way is over, as its line was.
  BasicVisits(BasicLane<Format>& lane, uint32_t said) : lane_(lane), count_(said & ~1u) {}

  // Runs visit() as a visit, and returns its result. visit() must first check the board, by sequentially
  // consistent loads, and returns whether it accessed the memory. If the owner accepts no more visits, run()
  // returns false without calling visit().
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
  uint32_t count_;  // twice the number of visits
};

using Visits = BasicVisits<LaneFormat>;

// The owner's side. REQUIRES: between the change of the board and the call of visit_under_way(), the owner
// calls Format::full_fence().

// Returns a number that stands for the visit under way, or 0 if there is none. The visit is over when a later
// call returns another number.
template <class Format>
uint32_t visit_under_way(const BasicLane<Format>& lane) {
  const uint32_t said = lane.in_access.load(std::memory_order_seq_cst);
  return (said & 1) != 0 ? said : 0;
}

// Makes later visits fail. A visit that is under way may go on.
template <class Format>
void refuse_visits(BasicLane<Format>& lane) {
  lane.refuses_access.store(1, std::memory_order_seq_cst);
}

}  // namespace verbena::shm
