// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "libraries/rsockets/address.h"

namespace verbena::rsockets {

// The destinations of a datagram rsocket, by address. A datagram from an unknown address adds an entry, so
// the table has a maximum size and evicts the oldest entry. Otherwise one host with 65,536 ports could fill
// the table for good. A destination that was evicted is learned again at the next datagram. Not thread-safe.
template <class Destination>
class DestinationTable {
 public:
  // `most`: the maximum number of destinations. REQUIRES: most > 0
  explicit DestinationTable(size_t most) : max_(most) {}

  // Returns the destination with this address; null if it is unknown.
  Destination* find(const Address& address) const {
    const auto found = by_address_.find(address);
    return found != by_address_.end() ? found->second.get() : nullptr;
  }

  // Adds a destination. If the table is full, first evicts the oldest destination for which
  // may_go(destination) is true. Returns null if none of the kMaxLooks oldest may be evicted. REQUIRES:
  // find(address) is null
  template <class MayGo>
  Destination* add(const Address& address, std::unique_ptr<Destination> fresh, MayGo may_go) {
    if (by_address_.size() >= max_ && !make_room(may_go)) return nullptr;
    Destination* const added = by_address_.emplace(address, std::move(fresh)).first->second.get();
    order_.push_back(address);
    return added;
  }

  void clear() {
    by_address_.clear();
    order_.clear();
  }

 private:
  // The maximum number of entries examined for one eviction, so that each datagram has a bounded cost. An
  // entry that may not be evicted becomes the newest.
  static constexpr int kMaxLooks = 64;

  template <class MayGo>
  bool make_room(MayGo may_go) {
    for (int looks = 0; looks < kMaxLooks; ++looks) {
      const Address first = order_.front();
      order_.pop_front();
      const auto found = by_address_.find(first);
      if (may_go(std::as_const(*found->second))) {
        by_address_.erase(found);
        return true;
      }
      order_.push_back(first);
    }
    return false;
  }

  const size_t max_;
  std::map<Address, std::unique_ptr<Destination>> by_address_;
  std::deque<Address> order_;  // in the order of eviction
};

}  // namespace verbena::rsockets
