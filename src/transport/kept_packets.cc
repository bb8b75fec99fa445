// SPDX-License-Identifier: Apache-2.0
#include "transport/kept_packets.h"

#include <algorithm>
#include <new>

namespace verbena::transport {
namespace {

// One queue pair may keep two thirds of it, what a path of 10 Gb/s and 50 ms holds.
constexpr size_t kMostKeptBytes = size_t{96} << 20;
constexpr size_t kFirstSlots = 256;

}  // namespace

ByteBudget& budget_for_kept_packets() {
  static ByteBudget budget(kMostKeptBytes);
  return budget;
}

bool KeptPackets::grow_for(uint32_t ahead) {
  if (ahead < slots_.size()) return true;
  const size_t size = std::max(std::bit_ceil(size_t{ahead} + 1), kFirstSlots);
  const size_t more = (size - slots_.size()) * sizeof(Entry*);
  if (!take(more)) return false;
  try {
    std::vector<Entry*> larger(size);
    for (Entry* entry : slots_) {
      if (entry != nullptr) larger[entry->headers.psn.value() & (size - 1)] = entry;
    }
    slots_.swap(larger);
  } catch (const std::bad_alloc&) {
    give_back(more);
    return false;
  }
  return true;
}

void KeptPackets::drop_slots() {
  give_back(slots_.size() * sizeof(Entry*));
  std::vector<Entry*>().swap(slots_);  // an assignment would keep the memory
}

bool KeptPackets::add(const roce::Packet& packet, uint32_t psns, roce::Psn expected) {
  const auto ahead = static_cast<uint32_t>(packet.headers.psn - expected);
  if (ahead >= kMostAhead || !grow_for(ahead)) return false;
  const bool is_kept = put(packet, psns);
  if (count_ == 0) drop_slots();
  return is_kept;
}

bool KeptPackets::put(const roce::Packet& packet, uint32_t psns) {
  Entry*& slot = slots_[slot_of(packet.headers.psn)];
  if (slot != nullptr) return false;
  const size_t bytes = sizeof(Entry) + packet.payload.size();
  if (!take(bytes)) return false;
  void* const memory = ::operator new(bytes, std::nothrow);
  if (memory == nullptr) {
    give_back(bytes);
    return false;
  }
  slot = new (memory) Entry{packet.headers, psns, static_cast<uint32_t>(packet.payload.size())};
  std::copy(packet.payload.begin(), packet.payload.end(), slot->payload());
  if (count_ == 0 || packet.headers.psn.is_after(furthest_)) furthest_ = packet.headers.psn;
  ++count_;
  return true;
}

bool KeptPackets::has(roce::Psn psn) const {
  if (count_ == 0) return false;
  const Entry* entry = slots_[slot_of(psn)];
  return entry != nullptr && entry->headers.psn == psn;
}

roce::Packet KeptPackets::at(roce::Psn psn) const {
  Entry* entry = slots_[slot_of(psn)];
  return {entry->headers, {entry->payload(), entry->bytes}};
}

void KeptPackets::erase(roce::Psn psn) {
  Entry*& slot = slots_[slot_of(psn)];
  give_back(sizeof(Entry) + slot->bytes);
  ::operator delete(slot);
  slot = nullptr;
  if (--count_ == 0) drop_slots();
}

void KeptPackets::clear() {
  for (size_t i = 0; count_ > 0; ++i) {
    if (slots_[i] != nullptr) erase(slots_[i]->headers.psn);
  }
}

uint32_t KeptPackets::next_occupied(roce::Psn from, uint32_t ahead) const {
  while (ahead < kMostAhead && ahead < slots_.size() && !has(from + ahead)) ++ahead;
  return ahead < slots_.size() ? ahead : kMostAhead;
}

}  // namespace verbena::transport
