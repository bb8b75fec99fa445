// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/key_table.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace verbena::memory {

namespace {

constexpr uint32_t kIdentityBits = 24;
constexpr uint32_t kIdentities = 1u << kIdentityBits;
constexpr uint32_t kTagBits = 8;
constexpr uint32_t kFirstSlots = 64;
// Separates the secret's use for tags from its use for identities: no round has this number.
constexpr uint64_t kOfTags = uint64_t{1} << 63;

}  // namespace

KeyTable::Slot KeyTable::no_slot_;
KeyTable::Table KeyTable::nothing_(1, &KeyTable::no_slot_);

KeyTable::KeyTable(const SipKey& secret, uint32_t capacity)
    : secret_(secret), capacity_(std::min(capacity, kIdentities - 1)) {}

KeyTable::~KeyTable() = default;

Result<uint32_t> KeyTable::insert(Region* region) {
  const std::lock_guard guard(lock_);
  if (size_ >= capacity_) return fail(ENOMEM);
  if (!make_room()) return fail(ENOMEM);
  region->key = draw_key();
  region->publish();
  if (place(*current_, region)) ++used_;
  ++size_;
  if (publisher_ != nullptr) publisher_->publish(*region);
  return region->key;
}

void KeyTable::remove(uint32_t key) {
  locked([&] { unlink(*find(key)); });
  await_readers();
}

void KeyTable::await_readers() {
  const std::unique_ptr<Table> unreachable = locked([&] { return std::move(replaced_); });
  readers_.await();
  if (publisher_ != nullptr) publisher_->await_users();
}

Region* KeyTable::find_identity(uint32_t key) const {
  const Table& table = *table_.load(std::memory_order_relaxed);
  for (uint32_t at = home(key) & table.mask;; at = (at + 1) & table.mask) {
    const uint32_t identity = table.slots[at].identity.load(std::memory_order_relaxed);
    if (identity == home(key)) return table.slots[at].region.load(std::memory_order_relaxed);
    if (identity == kFree) return nullptr;
  }
}

void KeyTable::unlink(Region& region) {
  if (publisher_ != nullptr) publisher_->withdraw(region.key);
  const Table& table = *current_;
  uint32_t at = home(region.key) & table.mask;
  while (table.slots[at].identity.load(std::memory_order_relaxed) != home(region.key))
    at = (at + 1) & table.mask;
  table.slots[at].identity.store(kPassed, std::memory_order_seq_cst);
  table.slots[at].region.store(nullptr, std::memory_order_release);
  has_changed();
  --size_;
  // At the end of a run of used slots, no tombstones are needed.
  const auto identity_at = [&](uint32_t index) -> std::atomic<uint32_t>& {
    return table.slots[index & table.mask].identity;
  };
  if (identity_at(at + 1).load(std::memory_order_relaxed) != kFree) return;
  for (; identity_at(at).load(std::memory_order_relaxed) == kPassed; --at, --used_)
    identity_at(at).store(kFree, std::memory_order_seq_cst);
}

uint32_t KeyTable::draw_key() {
  for (;;) {
    const uint32_t count = counter_++;
    const uint32_t identity = permute<kIdentityBits>(count & (kIdentities - 1), secret_);
    if (identity == 0 || find_identity(identity << kTagBits) != nullptr) continue;
    const uint32_t tag = permute<kTagBits>(count >> kIdentityBits, siphash(secret_, kOfTags | identity));
    return identity << kTagBits | tag;
  }
}

// Stores the region first: a reader that sees the identity finds it, or a later one. Returns whether the slot
// was free.
bool KeyTable::place(const Table& table, Region* region) {
  const auto is_taken = [](uint32_t identity) { return identity != kFree && identity != kPassed; };
  uint32_t at = home(region->key) & table.mask;
  while (is_taken(table.slots[at].identity.load(std::memory_order_relaxed))) at = (at + 1) & table.mask;
  const bool was_free = table.slots[at].identity.load(std::memory_order_relaxed) == kFree;
  table.slots[at].region.store(region, std::memory_order_release);
  table.slots[at].identity.store(home(region->key), std::memory_order_seq_cst);
  return was_free;
}

// Makes room for one more: a larger table if needed, or one without tombstones.
bool KeyTable::make_room() {
  if (current_ != nullptr && 2 * (used_ + 1) <= current_->mask + 1) return true;
  const uint32_t slots = std::max(std::bit_ceil(3 * (size_ + 1)), kFirstSlots);
  std::unique_ptr<Slot[]> storage(new (std::nothrow) Slot[slots]);
  if (storage == nullptr) return false;
  std::unique_ptr<Table> made(new (std::nothrow) Table(slots, storage.get()));
  if (made == nullptr) return false;
  made->storage = std::move(storage);
  if (current_ != nullptr) {
    for (uint32_t at = 0; at <= current_->mask; ++at) {
      if (Region* region = current_->slots[at].region.load(std::memory_order_relaxed)) place(*made, region);
    }
  }
  used_ = size_;
  table_.store(made.get(), std::memory_order_seq_cst);
  std::swap(current_, made);
  if (made != nullptr) {  // a reader may be searching it
    made->older = std::move(replaced_);
    replaced_ = std::move(made);
  }
  return true;
}

// Not inlined: its callers would have to prepare for it on each call.
const Opening* KeyFinder::look_up(uint32_t key, uint64_t changes, Remembered& known) const {
  const Opening* const none = nullptr;
  return table_->open(key, none, [&](const Opening& found) {
    known.changes = changes;
    known.opening = found;
    return &std::as_const(known.opening);
  });
}

}  // namespace verbena::memory
