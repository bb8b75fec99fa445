// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "memory/region.h"

namespace verbena::memory {

// Draws keys and finds regions by them.
//
// A key is 24 bits of identity and 8 bits of tag (the part that a consumer may choose for type 2 windows).
// Identities come from a secret permutation of a counter: 16.7 million registrations pass before one comes
// again, and knowing some tells nothing of the others. Tags are random. So a stale or guessed key does not
// match: find() compares all 32 bits. No key is 0.
//
// Not thread-safe: a shard's lock guards it; find() is on the data path and neither allocates nor branches on
// the table's size.
class KeyTable {
 public:
  // `secret` seeds the permutation and the tags: getrandom(2)'s in production, a test's seed in tests.
  // `capacity`: the most regions at once; ENOMEM beyond. Costs nothing until used.
  KeyTable(uint64_t secret, uint32_t capacity);
  ~KeyTable();

  // Gives the region a fresh key (region->key) and enters it. The region must stay where it is until removed.
  // Errors: ENOMEM.
  Result<uint32_t> insert(Region* region);

  // REQUIRES: the key is in the table
  void remove(uint32_t key);

  // The region with exactly this key, or nullptr.
  Region* find(uint32_t key) const;

  uint32_t size() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace verbena::memory
