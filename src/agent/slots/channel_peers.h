// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/roce/qpn.h"

namespace verbena::agent {

// Remembers which slots have channels to each other, until each slot's holder has acknowledged the end of the
// other slot's lease. A process can keep its end of a channel after it has returned its slot. A peer that has
// not learned of the return would send packets for the slot's next holder over that channel, to the former
// holder. It would also believe that the former holder's packets come from the next holder.
//
// Allocates all its memory at the start: three bits for each pair of slots. For the agent's thread.
class ChannelPeers {
 public:
  ChannelPeers() : peers_(roce::Qpn::kSlots), untold_(roce::Qpn::kSlots), awaited_(roce::Qpn::kSlots) {}

  // Records a channel between the slots. REQUIRES: a != b, because no process acknowledges its own end; for
  // all methods: each slot is less than roce::Qpn::kSlots
  void join(uint32_t a, uint32_t b) {
    peers_[a].set(b);
    peers_[b].set(a);
  }
  // Records that the holder of `slot` must be told that the lease of `ended` has ended, because it may have a
  // channel to that slot.
  void must_tell(uint32_t slot, uint32_t ended) {
    untold_[slot].set(ended);
    awaited_[ended].set(slot);
    hearers_.set(slot);
  }
  // Records the end of the slot's lease. The holders of all slots with a channel to it must be told. The
  // slot's own holder need not be told of other ends any more.
  void end(uint32_t slot) {
    forget(slot);
    for_each(peers_[slot], [&](uint32_t peer) {
      peers_[peer].reset(slot);
      must_tell(peer, slot);
      return true;
    });
    peers_[slot].reset();
  }
  // Drops all ends of leases that the slot's holder must be told or has yet to acknowledge.
  void forget(uint32_t slot) {
    untold_[slot].reset();
    hearers_.reset(slot);
    for (Slots& awaited : awaited_) awaited.reset(slot);
  }
  // Returns whether the slot's holder must be told of the end of a lease.
  bool must_hear(uint32_t slot) const { return hearers_.test(slot); }
  // Calls visit(slot) for each slot whose holder must be told of the end of a lease.
  template <class Visit>
  void for_each_that_must_hear(Visit visit) const {
    for_each(hearers_, [&](uint32_t slot) {
      visit(slot);
      return true;
    });
  }
  // Tells the holder of `slot` of one ended lease. Calls tell(ended) for one slot `ended` whose end of lease
  // is still untold, and returns its result: whether the holder was told. If not, the holder must still be
  // told. REQUIRES: must_hear(slot)
  template <class Tell>
  bool tell_one(uint32_t slot, Tell tell) {
    bool told = false;
    for_each(untold_[slot], [&](uint32_t ended) {
      told = tell(ended);
      if (told) untold_[slot].reset(ended);
      return false;
    });
    hearers_.set(slot, untold_[slot].any());
    return told;
  }
  // Records that the holder of `slot` has acknowledged that the lease of `ended` has ended. Does nothing
  // while the holder must still be told that the lease has ended: then the acknowledgement is for an earlier
  // lease of `ended`.
  void heard(uint32_t slot, uint32_t ended) {
    if (!untold_[slot].test(ended)) awaited_[ended].reset(slot);
  }
  // Returns whether the holder of `slot` has yet to acknowledge an end of the lease of `ended`.
  bool awaits(uint32_t slot, uint32_t ended) const { return awaited_[ended].test(slot); }
  // Returns whether any slot's holder has yet to acknowledge an end of the lease of `ended`.
  bool is_awaited(uint32_t ended) const { return awaited_[ended].any(); }

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

  std::vector<Slots> peers_;    // by slot: the slots with a channel to it
  std::vector<Slots> untold_;   // by slot: the ended slots of which its holder must be told
  std::vector<Slots> awaited_;  // by ended slot: the slots whose holders have yet to acknowledge
  Slots hearers_;               // the slots with any `untold_`
};

}  // namespace verbena::agent
