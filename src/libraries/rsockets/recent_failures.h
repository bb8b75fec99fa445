// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <deque>
#include <utility>

#include "base/time.h"
#include "libraries/rsockets/address.h"

namespace verbena::rsockets {

// The local addresses for which creating a queue pair has failed within the last second. An attempt takes
// long, and peers can cause attempts as often as they like. So callers do not repeat an attempt for these
// addresses. Keeps the latest kMax addresses. Not thread-safe.
class RecentFailures {
 public:
  static constexpr size_t kMax = 64;
  static constexpr Duration kTime = std::chrono::seconds(1);

  void add(const Address& address, TimePoint now) {
    std::erase_if(failures_, [&](const auto& failure) { return failure.first == address; });
    if (failures_.size() == kMax) failures_.pop_front();
    failures_.emplace_back(address, now);
  }
  bool contains(const Address& address, TimePoint now) const {
    return std::ranges::any_of(failures_, [&](const auto& failure) {
      return failure.first == address && now < failure.second + kTime;
    });
  }

 private:
  std::deque<std::pair<Address, TimePoint>> failures_;  // oldest first
};

}  // namespace verbena::rsockets
