// SPDX-License-Identifier: Apache-2.0
#include "memory/key_table.h"

#include <algorithm>
#include <new>

#include "memory/permutation.h"

namespace verbena::memory {
namespace {

constexpr uint32_t kIdentityBits = 24;
constexpr uint32_t kIdentities = 1u << kIdentityBits;
constexpr uint32_t kTagBits = 8;
constexpr uint32_t kTagMask = (1u << kTagBits) - 1;
constexpr uint32_t kFirstSlots = 64;

}  // namespace

KeyTable::Slot KeyTable::nothing_[1];

KeyTable::KeyTable(uint64_t secret, uint32_t capacity)
    : secret_(secret), capacity_(std::min(capacity, kIdentities - 1)) {}

KeyTable::~KeyTable() = default;

Result<uint32_t> KeyTable::insert(Region* region) {
  if (size_ >= capacity_) return fail(ENOMEM);
  if (2 * (size_ + 1) > mask_ + 1 && !grow()) return fail(ENOMEM);
  region->key = draw_key();
  place(region, region->key);
  ++size_;
  return region->key;
}

void KeyTable::remove(uint32_t key) {
  uint32_t hole = home(key);
  while (slots_[hole].key != key) hole = (hole + 1) & mask_;
  // Pull back what was pushed beyond the hole, so that searches need no tombstones.
  for (uint32_t at = (hole + 1) & mask_; slots_[at].region != nullptr; at = (at + 1) & mask_) {
    const uint32_t displaced = (at - home(slots_[at].key)) & mask_;
    if (displaced < ((at - hole) & mask_)) continue;  // it would land before its home
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = Slot{};
  --size_;
}

void KeyTable::set_tag(Region* region, uint8_t tag) {
  const uint32_t key = (region->key & ~kTagMask) | tag;
  uint32_t at = home(key);
  while (slots_[at].region != region) at = (at + 1) & mask_;
  slots_[at].key = region->key = key;
}

uint32_t KeyTable::draw_key() {
  for (;;) {
    const uint32_t count = counter_++;
    const uint32_t identity = permute<kIdentityBits>(count & (kIdentities - 1), secret_);
    if (identity == 0 || find_identity(identity << kTagBits) != nullptr) continue;
    const uint32_t tag = permute<kTagBits>(count >> kIdentityBits, mix(secret_ ^ identity));
    return identity << kTagBits | tag;
  }
}

void KeyTable::place(Region* region, uint32_t key) {
  uint32_t at = home(key);
  while (slots_[at].region != nullptr) at = (at + 1) & mask_;
  slots_[at] = {region, key};
}

bool KeyTable::grow() {
  const uint32_t old_slots = storage_ ? mask_ + 1 : 0;
  const uint32_t new_slots = std::max(2 * old_slots, kFirstSlots);
  std::unique_ptr<Slot[]> old(new (std::nothrow) Slot[new_slots]);
  if (old == nullptr) return false;
  old.swap(storage_);
  slots_ = storage_.get();
  mask_ = new_slots - 1;
  for (uint32_t i = 0; i < old_slots; ++i) {
    if (old[i].region != nullptr) place(old[i].region, old[i].key);
  }
  return true;
}

}  // namespace verbena::memory
