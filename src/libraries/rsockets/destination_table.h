// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "libraries/rsockets/address.h"

namespace verbena::rsockets {

// Those that a datagram rsocket knows, by address. Each datagram from somebody new makes it one more, so
// there are at most so many, and the one that came first makes room for the next: else one host with 65,536
// ports could see to it that nobody else is ever learned of. Who is forgotten and sent to again is new again.
template <class Destination>
class DestinationTable {
 public:
  // REQUIRES: most > 0
  explicit DestinationTable(size_t most) : max_(most) {}

  // Null if there is none.
  Destination* find(const Address& address) const {
    const auto found = by_address_.find(address);
    return found != by_address_.end() ? found->second.get() : nullptr;
  }

  // The new one; null where it is one too many and none was found that may_go(destination) says of that it
  // may. REQUIRES: there is none of this address
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
  // Those that must stay are moved out of the way, so that what one datagram costs is bounded.
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
  std::deque<Address> order_;  // as they came
};

}  // namespace verbena::rsockets
