// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/reorder_buffer.h"

namespace verbena::transport {
namespace {

// Limit for the process. One queue pair may use two thirds of it: as many packets of 1 KiB as may be in
// flight, which is what a path of 10 Gb/s and 50 ms holds.
constexpr size_t kMaxKeptBytes = size_t{128} << 20;
constexpr size_t kFirstSlots = 256;

}  // namespace

ByteBudget& budget_for_reorder_buffers() {
  static ByteBudget budget(kMaxKeptBytes);
  return budget;
}

bool ReorderBuffer::grow_for(uint32_t ahead) {
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

void ReorderBuffer::drop_slots() {
  give_back(slots_.size() * sizeof(Entry*));
  std::vector<Entry*>().swap(slots_);  // an assignment would keep the memory
}

bool ReorderBuffer::add(const roce::Packet& packet, uint32_t psns, roce::Psn expected) {
  const auto ahead = static_cast<uint32_t>(packet.headers.psn - expected);
  if (ahead >= kMaxAhead || !grow_for(ahead)) return false;
  const bool is_kept = put(packet, psns);
  if (count_ == 0) clear();
  return is_kept;
}

bool ReorderBuffer::put(const roce::Packet& packet, uint32_t psns) {
  Entry*& slot = slots_[slot_of(packet.headers.psn)];
  if (slot != nullptr) {
    // This copy may request the acknowledgement that the first one did not.
    if (slot->headers.psn == packet.headers.psn) slot->headers.ack_request |= packet.headers.ack_request;
    return false;
  }
  const size_t bytes = kEntryBytes + packet.payload.size();
  if (!take(bytes)) return false;
  void* const memory = ::operator new(sizeof(Entry) + packet.payload.size(), std::nothrow);
  if (memory == nullptr || !ranges_.add(packet.headers.psn, packet.headers.psn + std::min(psns, kMaxAhead))) {
    ::operator delete(memory);
    give_back(bytes);
    return false;
  }
  slot = new (memory) Entry{packet.headers, psns, static_cast<uint32_t>(packet.payload.size())};
  std::copy(packet.payload.begin(), packet.payload.end(), slot->payload());
  if (count_ == 0 || packet.headers.psn.is_after(furthest_)) furthest_ = packet.headers.psn;
  ++count_;
  return true;
}

bool ReorderBuffer::has(roce::Psn psn) const {
  if (count_ == 0) return false;
  const Entry* entry = slots_[slot_of(psn)];
  return entry != nullptr && entry->headers.psn == psn;
}

roce::Packet ReorderBuffer::at(roce::Psn psn) const {
  Entry* entry = slots_[slot_of(psn)];
  return {entry->headers, {entry->payload(), entry->bytes}};
}

void ReorderBuffer::free(Entry*& slot) {
  give_back(kEntryBytes + slot->bytes);
  ::operator delete(slot);
  slot = nullptr;
  --count_;
}

void ReorderBuffer::erase(roce::Psn psn) {
  Entry*& slot = slots_[slot_of(psn)];
  ranges_.drop_before(psn + slot->psns);
  free(slot);
  if (count_ == 0) clear();
}

void ReorderBuffer::clear() {
  for (size_t i = 0; count_ > 0; ++i) {
    if (slots_[i] != nullptr) free(slots_[i]);
  }
  ranges_.clear();
  drop_slots();
}

}  // namespace verbena::transport
