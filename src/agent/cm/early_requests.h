// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/time.h"
#include "cm/events.h"
#include "cm/mad.h"

namespace verbena::agent {

// Requests for ports that nobody listens on, kept for a moment: the listener may be on its way. Programs that
// agree on a port over another connection (perftest's -R) race for it, the one to listen, the other to
// connect. Asking the kernel is so quick that the listener wins there; asking us is not. A refusal that comes
// a moment later hurts nobody, while perftest does not survive one. Of the agent's thread.
class EarlyRequests {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(100);
  static constexpr size_t kMost = 64;  // beyond, they are refused at once

  struct Request {
    cm::Mad mad;
    cm::Arrival arrival;
    TimePoint deadline;
  };

  bool has_room() const { return requests_.size() < kMost; }
  // REQUIRES: a whole MAD; deadlines never go back
  void keep(ConstBytes mad, const cm::Arrival& arrival, TimePoint deadline);
  // When the first has waited long enough; kNever: there is none.
  TimePoint deadline() const { return requests_.empty() ? kNever : requests_.front().deadline; }
  std::optional<Request> take_overdue(TimePoint now);
  std::deque<Request> take_all() { return std::exchange(requests_, {}); }

 private:
  std::deque<Request> requests_;
};

}  // namespace verbena::agent
