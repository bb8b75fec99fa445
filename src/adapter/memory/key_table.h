// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "adapter/memory/key_publisher.h"
#include "adapter/memory/readers.h"
#include "adapter/memory/region.h"
#include "base/result.h"
#include "base/section_lock.h"
#include "base/siphash.h"

namespace verbena::memory {

// Draws keys and finds what they open. One for a process, whatever the number of its shards.
//
// A key is 24 bits of identity and 8 bits of tag (the part that a consumer may choose for type 2 windows).
// Identities come from a secret permutation of a counter: 16.7 million registrations pass before one comes
// again, and knowing some tells nothing of the others. An identity's tags come from a secret permutation of
// its own, so that no whole key repeats in 2^32 registrations. So a stale or guessed key does not match:
// open() compares all 32 bits. No key is below 256, so none is 0.
//
// Thread-safe. open() is on the data path of every shard at once: it takes no lock, writes nothing, allocates
// nothing and does not branch on the table's size. Its caller is in a section of a lock that is among
// readers(), and uses what it found in that section only. Writers have a lock of their own; a writer that
// takes something away waits with await_readers() for the readers that may still be using it.
class KeyTable {
 public:
  // `secret` picks the permutations: nobody else's, and the same for nothing else.
  // `capacity`: the most regions at once; ENOMEM beyond. Costs nothing until used.
  KeyTable(const SipKey& secret, uint32_t capacity);
  // With a test's seed.
  KeyTable(uint64_t seed, uint32_t capacity) : KeyTable(SipKey{seed, 0}, capacity) {}
  ~KeyTable();
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;

  Readers& readers() { return readers_; }
  // Hears of every key from now on; await_readers() waits for its users, too. Set once, before the first key.
  void set_publisher(KeyPublisher& publisher) { publisher_ = &publisher; }

  // ---- readers

  // Calls use(opening) with what exactly this key opens now, and answers what it answers; `otherwise` if
  // there is no such key. (To hand out the opening itself would cost more than to find it: it is written to
  // memory in pieces and read back whole, which the processor has to wait for.)
  template <class Answer, class Use>
  Answer open(uint32_t key, Answer otherwise, Use use) const {
    const Table& table = *table_.load(std::memory_order_seq_cst);
    for (uint32_t at = home(key) & table.mask;; at = (at + 1) & table.mask) {
      const Slot& slot = table.slots[at];
      const uint32_t identity = slot.identity.load(std::memory_order_seq_cst);
      if (identity == kFree) return otherwise;
      if (identity != home(key)) continue;
      const Region* region = slot.region.load(std::memory_order_acquire);
      // Another one, if the slot has been given away since: then the key is gone.
      if (region == nullptr) return otherwise;
      const Opening found = region->published.read();
      return found.key == key ? use(found) : otherwise;
    }
  }
  std::optional<Opening> open(uint32_t key) const {
    return open(key, std::optional<Opening>(), [](const Opening& found) { return std::optional(found); });
  }

  // Another number whenever what some key opens has changed, or is gone: what a section has found before,
  // those that begin after find no more.
  uint64_t changes() const { return changes_.load(std::memory_order_seq_cst); }

  // ---- writers, which are in no section of a reader unless it says so

  // Gives the region a fresh key (region->key) and publishes it. The region must stay where it is until it is
  // removed. Also inside a section. Errors: ENOMEM.
  Result<uint32_t> insert(Region* region);

  // The key opens nothing any more, and nobody uses what it opened. REQUIRES: the key is in the table
  void remove(uint32_t key);

  // Nobody uses any more what was taken away before. Not with the writers' lock.
  void await_readers();
  // For who cannot wait; also inside a section. Those who, beside the readers, may be using what was taken
  // away before (0: nobody), and whether they have gone.
  uint64_t users() const { return publisher_ != nullptr ? publisher_->users() : 0; }
  bool are_gone(uint64_t users) const { return users == 0 || publisher_->are_gone(users); }

  // Runs `action` with the writers' lock: for whatever looks at regions of the table, or changes them. Also
  // inside a section.
  template <class Action>
  auto locked(Action action) {
    const std::lock_guard guard(lock_);
    return action();
  }
  // So that a child after fork() gets the table whole; see Engine. False: the lock was not free soon.
  bool lock_for_fork(Duration patience) { return lock_.try_lock_for(patience); }
  void unlock_in_parent() { lock_.unlock(); }
  void free_in_child() { lock_.free_in_child(); }

  // ---- with the writers' lock

  // The region with exactly this key, or nullptr.
  Region* find(uint32_t key) const {
    Region* region = find_identity(key);
    return region != nullptr && region->key == key ? region : nullptr;
  }
  // The region whose key has the identity of this one, whatever the tags, or nullptr.
  Region* find_identity(uint32_t key) const;

  // Gives the region, which is in the table, this tag: its key's low 8 bits. To be published.
  void set_tag(Region* region, uint8_t tag) { region->key = (region->key & ~0xffu) | tag; }

  // Calls change(), which makes another of the region, and publishes that. REQUIRES: it is in the table
  template <class Change>
  void republish(Region& region, Change change) {
    if (publisher_ != nullptr) publisher_->withdraw(region.key);
    change();
    region.publish();
    has_changed();
    if (publisher_ != nullptr) publisher_->publish(region);
  }

  // Takes the region out. It must stay where it is until await_readers(). REQUIRES: it is in the table
  void unlink(Region& region);

  uint32_t size() const { return size_; }

 private:
  // Open addressing with linear probing, at most half full. Identities are random already, so their low bits
  // serve as the hash. Entries never move, so that a reader that is searching does not miss one; what is
  // taken out in the middle of a run leaves its slot to be passed over.
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kPassed = UINT32_MAX;
  struct Slot {
    std::atomic<uint32_t> identity{kFree};
    std::atomic<Region*> region{nullptr};
  };
  struct Table {
    Table(uint32_t slot_count, Slot* from) : mask(slot_count - 1), slots(from) {}
    const uint32_t mask;
    Slot* const slots;
    std::unique_ptr<Slot[]> storage;
    std::unique_ptr<Table> older;  // replaced before, and not freed yet
  };
  static Table nothing_;  // what an empty table searches
  static Slot no_slot_;

  static uint32_t home(uint32_t key) { return key >> 8; }
  static bool place(const Table& table, Region* region);
  bool make_room();
  uint32_t draw_key();
  void has_changed() {
    changes_.store(changes_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  }

  const SipKey secret_;
  const uint32_t capacity_;
  std::atomic<const Table*> table_{&nothing_};
  std::atomic<uint64_t> changes_{0};
  Readers readers_;
  KeyPublisher* publisher_ = nullptr;

  // Under the lock
  SectionLock lock_;
  uint32_t counter_ = 0;  // low 24 bits: which identity; high 8: how often it has been drawn before
  uint32_t size_ = 0;
  uint32_t used_ = 0;  // slots that are not free
  std::unique_ptr<Table> current_;
  std::unique_ptr<Table> replaced_;
};

}  // namespace verbena::memory
