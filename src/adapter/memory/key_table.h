// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>

#include "adapter/memory/region.h"
#include "base/cache_line.h"
#include "base/result.h"
#include "base/section_lock.h"
#include "base/siphash.h"

namespace verbena::memory {

// Spreads every input bit over the whole output (the finalizer of splitmix64).
constexpr uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Permutes the numbers of `bits` bits with a Feistel network of six rounds. The network is a permutation for
// every round function scramble(round, half). Four rounds look random if the round function does (Luby and
// Rackoff); two more rounds make up for the short numbers.
template <uint32_t bits, class Scramble>
constexpr uint32_t permute_by(uint32_t value, Scramble scramble) {
  static_assert(bits % 2 == 0 && bits <= 32);
  constexpr uint32_t kHalf = bits / 2;
  constexpr uint32_t kMask = (1u << kHalf) - 1;
  uint32_t left = value >> kHalf;
  uint32_t right = value & kMask;
  for (uint64_t round = 0; round < 6; ++round) {
    const uint32_t next = left ^ (static_cast<uint32_t>(scramble(round, right)) & kMask);
    left = right;
    right = next;
  }
  return left << kHalf | right;
}

// Applies the permutation that the key selects. Knowing some values of the permutation reveals nothing of the
// others.
template <uint32_t bits>
constexpr uint32_t permute(uint32_t value, const SipKey& key) {
  return permute_by<bits>(value,
                          [&](uint64_t round, uint32_t half) { return siphash(key, round << 32 | half); });
}

// Like permute() above, but faster and weaker. REQUIRES: `secret` is used for nothing else
template <uint32_t bits>
constexpr uint32_t permute(uint32_t value, uint64_t secret) {
  return permute_by<bits>(value,
                          [=](uint64_t round, uint32_t half) { return mix(mix(secret + round) ^ half); });
}

// Lets a writer of a table wait for the threads that read the table without its lock, as in RCU. Each reader
// is in a section of one of the added locks (base/section_lock.h), one per shard. A reader uses an entry only
// in the section in which it found the entry.
//
// A writer makes an entry unreachable, and then waits until every section that was open has ended. After
// that, no reader uses the entry any more. Readers pay nothing for this.
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

// Shows the keys of a KeyTable to other processes, in the export table (adapter/shm/own_board.h). The
// KeyTable calls the publisher at each change.
class KeyPublisher {
 public:
  virtual ~KeyPublisher() = default;

  // ---- with the table's lock held

  // Publishes a key, `opening.key`, with the range and the rights that the key gives from now on.
  virtual void publish(const Opening& opening) = 0;
  // Withdraws a key. Called before the key is removed, or gives access to something else.
  virtual void withdraw(uint32_t key) = 0;

  // ---- without the table's lock

  // Waits until no other process uses withdrawn keys any more.
  virtual void await_users() = 0;
  // Alternative to await_users() that does not wait: returns a value for are_gone(), which identifies the
  // accesses that may still use withdrawn keys. Returns 0 if there are none.
  virtual uint64_t users() = 0;
  // Returns whether all accesses that `users` identifies have finished. Never blocks. An access still running
  // after 2 s counts as finished.
  virtual bool are_gone(uint64_t users) = 0;
};

// Maximum number of memory regions plus memory windows of a process: the size of its key table.
inline constexpr uint32_t kMaxRegions = 1u << 23;

// Allocates keys, and finds the region or window behind a key. A key opens memory: it gives access to a range
// (Opening). There is one table per process, whatever the number of its shards.
//
// A key is 24 bits of identity and 8 bits of tag (the part that a consumer may choose for type 2 windows).
// Identities come from a secret permutation of a counter. So an identity repeats only after 16.7 million
// registrations, and knowing some identities reveals nothing of the others. An identity's tags come from a
// secret permutation of its own, so that no whole key repeats in 2^32 registrations. So a stale or guessed
// key does not match: open() compares all 32 bits. No key is below 256, so none is 0.
//
// Thread-safe. open() is on the data path of every shard at once: it takes no lock, writes nothing, allocates
// nothing and does not branch on the table's size. Its caller is in a section of a lock that is among
// readers(), and uses the result in that section only. Writers have a lock of their own. A writer that
// removes something calls await_readers() to wait for the readers that may still be using it.
class KeyTable {
 public:
  // `secret` selects the permutations: it must be unknown to others, and used for nothing else. `capacity` is
  // the maximum number of keys at a time: insert() returns ENOMEM beyond it. An empty table takes no memory.
  KeyTable(const SipKey& secret, uint32_t capacity);
  // For tests: makes the secret from a seed.
  KeyTable(uint64_t seed, uint32_t capacity) : KeyTable(SipKey{seed, 0}, capacity) {}
  ~KeyTable();
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;

  Readers& readers() { return readers_; }
  // Makes the table show all keys by `publisher`. Then await_readers() waits for other processes, too. Call
  // once, before the first key.
  void set_publisher(KeyPublisher& publisher) { publisher_ = &publisher; }

  // ---- readers

  // Looks up a key by all its 32 bits. Calls use(opening) with the range and the rights that the key gives
  // now, and returns the result of use(); `otherwise` if there is no such key. (Returning the opening would
  // cost more than finding it: it is written to memory in pieces and read back whole, which makes the
  // processor wait.)
  template <class Answer, class Use>
  Answer open(uint32_t key, Answer otherwise, Use use) const {
    const Table& table = *table_.load(std::memory_order_seq_cst);
    for (uint32_t at = home(key) & table.mask;; at = (at + 1) & table.mask) {
      const Slot& slot = table.slots[at];
      const uint32_t identity = slot.identity.load(std::memory_order_seq_cst);
      if (identity == kFree) return otherwise;
      if (identity != home(key)) continue;
      const Region* region = slot.region.load(std::memory_order_acquire);
      // null, or another region, if the slot was freed or reused meanwhile: then the key is gone.
      if (region == nullptr) return otherwise;
      const Opening found = region->published.read();
      return found.key == key ? use(found) : otherwise;
    }
  }
  std::optional<Opening> open(uint32_t key) const {
    return open(key, std::optional<Opening>(), [](const Opening& found) { return std::optional(found); });
  }

  // Returns a number that increases whenever a key is removed or gives access to something else; new keys do
  // not count. Sections that begin after such a change do not find the old Opening.
  uint64_t changes() const { return changes_.load(std::memory_order_seq_cst); }

  // ---- writers. REQUIRES: the caller is in no reader section, unless the comment allows it

  // Gives the region a new key, stores it in region->key, publishes the region, and returns the key. The
  // region must stay in place until it is removed. Allowed in a section. Errors: ENOMEM, also if the table is
  // full.
  Result<uint32_t> insert(Region* region);

  // Removes the key, and waits until no reader and no other process uses its region. REQUIRES: the key is in
  // the table
  void remove(uint32_t key);

  // Waits until no reader and no other process uses a region that was removed before. REQUIRES: the caller
  // does not hold the writers' lock
  void await_readers();
  // For callers that cannot wait; allowed in a section. users() returns a value that identifies the accesses
  // of other processes which may still use removed regions; 0 if there are none. are_gone() returns whether
  // these accesses have finished.
  uint64_t users() const { return publisher_ != nullptr ? publisher_->users() : 0; }
  bool are_gone(uint64_t users) const { return users == 0 || publisher_->are_gone(users); }

  // Runs `action` with the writers' lock held, as needed to read or change regions of the table. Allowed in a
  // section.
  template <class Action>
  auto locked(Action action) {
    const std::lock_guard guard(lock_);
    return action();
  }
  // Locks the table around fork(), so that the child gets a consistent table; see Engine. Returns false if
  // the lock was not free within `patience`.
  bool lock_for_fork(Duration patience) { return lock_.try_lock_for(patience); }
  void unlock_in_parent() { lock_.unlock(); }
  void free_in_child() { lock_.free_in_child(); }

  // ---- writers, with their lock held

  // Returns the region with exactly this key, or nullptr.
  Region* find(uint32_t key) const {
    Region* region = find_identity(key);
    return region != nullptr && region->key == key ? region : nullptr;
  }
  // Returns the region whose key has the same identity as `key`, whatever the tags; nullptr if there is none.
  Region* find_identity(uint32_t key) const;

  // Sets the low 8 bits of a region's key, the tag. The caller must then publish the region.
  void set_tag(Region* region, uint8_t tag) { region->key = (region->key & ~0xffu) | tag; }

  // Calls change(), which changes the region, and publishes the changed region. REQUIRES: the region is in
  // the table
  template <class Change>
  void republish(Region& region, Change change) {
    if (publisher_ != nullptr) publisher_->withdraw(region.key);
    change();
    region.publish();
    has_changed();
    if (publisher_ != nullptr) publisher_->publish(region);
  }

  // Removes the region from the table. The region must stay in place until await_readers() returns. REQUIRES:
  // the region is in the table
  void unlink(Region& region);

  uint32_t size() const { return size_; }

 private:
  // Open addressing with linear probing, at most half full. Identities are random, so their low bits serve as
  // the hash. Entries never move, so that a searching reader misses none. Removal within a run of used slots
  // leaves a tombstone (kPassed).
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
    std::unique_ptr<Table> older;  // replaced earlier, and not freed yet
  };
  static Table nothing_;  // searched while the table is empty
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

  // ---- under lock_
  SectionLock lock_;
  uint32_t counter_ = 0;  // low 24 bits: the next identity; high 8: how often it was drawn before
  uint32_t size_ = 0;
  uint32_t used_ = 0;  // slots that are not free
  std::unique_ptr<Table> current_;
  std::unique_ptr<Table> replaced_;
};

// Looks up keys in a KeyTable, with a cache of kRemembered openings: callers mostly use the same few keys. A
// change of the table invalidates the cache. For one thread at a time, in reader sections as with
// KeyTable::open(). A section that begins after a change of the table sees the change.
class KeyFinder {
 public:
  // REQUIRES: the table outlives the KeyFinder; `table` is null only if find() is never called
  explicit KeyFinder(const KeyTable* table) : table_(table) {}

  // Returns the opening of exactly this key, valid until the next call. Returns nullptr if there is no such
  // key.
  const Opening* find(uint32_t key) {
    // Read first, so that the result of a lookup is no older.
    const uint64_t changes = table_->changes();
    Remembered& known = remembered_[(key >> 8) % kRemembered];
    if (known.changes == changes && known.opening.key == key) [[likely]]
      return &known.opening;
    return look_up(key, changes, known);
  }

 private:
  static constexpr size_t kRemembered = 4;
  static constexpr uint64_t kNothing = UINT64_MAX;  // changes() never gets there
  struct alignas(kCacheLine) Remembered {
    uint64_t changes = kNothing;
    Opening opening;
  };
  static_assert(sizeof(Remembered) == kCacheLine);

  const Opening* look_up(uint32_t key, uint64_t changes, Remembered& known) const;

  const KeyTable* table_;
  std::array<Remembered, kRemembered> remembered_;
};

}  // namespace verbena::memory
