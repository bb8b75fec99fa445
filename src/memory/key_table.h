// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "memory/region.h"

namespace verbena::memory {

// Draws keys and finds regions by them.
//
// A key is 24 bits of identity and 8 bits of tag (the part that a consumer may choose for type 2 windows).
// Identities come from a secret permutation of a counter: 16.7 million registrations pass before one comes
// again, and knowing some tells nothing of the others. An identity's tags come from a secret permutation of
// its own, so that no whole key repeats in 2^32 registrations. So a stale or guessed key does not match:
// find() compares all 32 bits. No key is below 256, so none is 0.
//
// Not thread-safe: a shard's lock guards it; find() is on the data path and neither allocates nor branches on
// the table's size.
class KeyTable {
 public:
  // `secret` seeds the permutations: getrandom(2)'s in production, a test's seed in tests.
  // `capacity`: the most regions at once; ENOMEM beyond. Costs nothing until used.
  KeyTable(uint64_t secret, uint32_t capacity);
  ~KeyTable();
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;

  // Gives the region a fresh key (region->key) and enters it. The region must stay where it is until removed.
  // Errors: ENOMEM.
  Result<uint32_t> insert(Region* region);

  // REQUIRES: the key is in the table
  void remove(uint32_t key);

  // Gives the region, which is in the table, this tag: its key's low 8 bits.
  void set_tag(Region* region, uint8_t tag);

  // The region with exactly this key, or nullptr.
  Region* find(uint32_t key) const {
    for (uint32_t at = home(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.region == nullptr || slot.key == key) return slot.region;
    }
  }

  // The region whose key has the identity of this one, whatever the tags, or nullptr.
  Region* find_identity(uint32_t key) const {
    for (uint32_t at = home(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.region == nullptr || (slot.key ^ key) >> 8 == 0) return slot.region;
    }
  }

  uint32_t size() const { return size_; }

 private:
  // Open addressing with linear probing, at most half full. Identities are random already, so their low bits
  // serve as the hash.
  struct Slot {
    Region* region = nullptr;  // nullptr: free
    uint32_t key = 0;
  };
  static Slot nothing_[1];  // what an empty table searches

  uint32_t home(uint32_t key) const { return (key >> 8) & mask_; }
  void place(Region* region, uint32_t key);
  bool grow();
  uint32_t draw_key();

  const uint64_t secret_;
  const uint32_t capacity_;
  uint32_t counter_ = 0;  // low 24 bits: which identity; high 8: the how-manieth time
  uint32_t size_ = 0;
  uint32_t mask_ = 0;
  Slot* slots_ = nothing_;
  std::unique_ptr<Slot[]> storage_;
};

}  // namespace verbena::memory
