// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "wire/roce/path.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

// Set-associative cache of a datagram queue pair's state for each remote QP, by address and QPN. A remote QP
// can be in kWays of the kPlaces entries. A new one replaces the least recently used of these, so the size is
// fixed, however many remote QPs there are.
//
// For the shard's lock holder. Pointers from find() and get() are valid until the next get().
template <class Value>
class RecentPeers {
 public:
  static constexpr uint32_t kPlaces = 64;

  // Returns the value of the remote QP and counts as a use of it. Returns nullptr if the QP is not in the
  // cache.
  Value* find(const roce::Address& address, roce::Qpn qpn) {
    if (Entry* entry = look(address, qpn)) {
      entry->used = ++clock_;
      return &entry->value;
    }
    return nullptr;
  }

  // Returns the value of the remote QP, and whether this call has added it. If the QP is not in the cache,
  // adds a Value() for it in place of another QP's.
  std::pair<Value*, bool> get(const roce::Address& address, roce::Qpn qpn) {
    if (Value* value = find(address, qpn)) return {value, false};
    const std::span<Entry, kWays> places = places_of(address, qpn);
    Entry& entry = *std::ranges::min_element(places, {}, &Entry::used);
    entry = {address, qpn, ++clock_, Value()};
    return {&entry.value, true};
  }

  // Returns the index of a value in the cache, below kPlaces. at() returns the value with that index.
  uint32_t place_of(const Value& value) const {
    const auto offset =
        reinterpret_cast<const char*>(&value) - reinterpret_cast<const char*>(entries_.data());
    return static_cast<uint32_t>(static_cast<size_t>(offset) / sizeof(Entry));
  }
  Value& at(uint32_t place) { return entries_[place].value; }

  // Calls `function(value)` for each cached QP with this address.
  template <class Function>
  void for_each_at(const roce::Address& address, Function function) {
    for (Entry& entry : entries_) {
      if (entry.used != 0 && entry.address == address) function(entry.value);
    }
  }

 private:
  static constexpr uint32_t kWays = 4;

  struct Entry {
    roce::Address address;
    roce::Qpn qpn;
    uint64_t used = 0;  // last use, by clock_; 0: never
    Value value;
  };

  std::span<Entry, kWays> places_of(const roce::Address& address, roce::Qpn qpn) {
    uint32_t mixed = qpn.value() * 0x9e3779b1u;
    for (const uint8_t byte : address.bytes) mixed = (mixed ^ byte) * 0x01000193u;
    const uint32_t first = (mixed >> 16) % (kPlaces / kWays) * kWays;
    return std::span<Entry, kWays>(&entries_[first], kWays);
  }

  Entry* look(const roce::Address& address, roce::Qpn qpn) {
    for (Entry& entry : places_of(address, qpn)) {
      if (entry.used != 0 && entry.qpn == qpn && entry.address == address) return &entry;
    }
    return nullptr;
  }

  uint64_t clock_ = 0;
  std::array<Entry, kPlaces> entries_;
};

}  // namespace verbena::transport
