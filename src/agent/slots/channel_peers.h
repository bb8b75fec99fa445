// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/roce/qpn.h"

namespace verbena::agent {

// Remembers which slots have channels to each other, until each process has been told of the end of the other
// slot's lease. A process can keep its end of a channel after it has returned the slot. The slot's next user
// would then lose its packets to that process, and be taken for it.
//
// A pair of slots takes two bits, whatever processes do, and nothing here allocates memory later. For the
// agent's thread.
class ChannelPeers {
 public:
  ChannelPeers() : peers_(roce::Qpn::kSlots), untold_(roce::Qpn::kSlots) {}

  // Notes a channel between the slots. REQUIRES for all methods: each slot is less than roce::Qpn::kSlots
  void join(uint32_t a, uint32_t b) {
    peers_[a].set(b);
    peers_[b].set(a);
  }
  // Notes that the lease of `ended` has ended, if the holder of `slot` may have a channel to it.
  void must_tell(uint32_t slot, uint32_t ended) { untold_[slot].set(ended); }
  // Notes the end of the slot's lease, and calls visit(slot) for each slot that must be told of it.
  template <class Visit>
  void end(uint32_t slot, Visit visit) {
    untold_[slot].reset();
    const Slots its = peers_[slot];
    peers_[slot].reset();
    for_each(its, [&](uint32_t peer) {
      peers_[peer].reset(slot);
      must_tell(peer, slot);
      visit(peer);
      return true;
    });
  }
  // Returns whether the holder of the slot has not been told of some end.
  bool must_hear(uint32_t slot) const { return untold_[slot].any(); }
  // Calls tell(ended) for each slot whose end the holder of `slot` has not been told of, until it returns
  // false.
  template <class Tell>
  void tell(uint32_t slot, Tell tell) {
    for_each(untold_[slot], [&](uint32_t ended) {
      if (!tell(ended)) return false;
      untold_[slot].reset(ended);
      return true;
    });
  }

 private:
  using Slots = std::bitset<roce::Qpn::kSlots>;

  // By value, because visit() may change the set.
  template <class Visit>
  static void for_each(Slots slots, Visit visit) {
    for (uint32_t slot = 0; slot < roce::Qpn::kSlots && slots.any(); ++slot) {
      if (!slots.test(slot)) continue;
      slots.reset(slot);
      if (!visit(slot)) return;
    }
  }

  std::vector<Slots> peers_;   // by slot
  std::vector<Slots> untold_;  // by slot
};

}  // namespace verbena::agent
