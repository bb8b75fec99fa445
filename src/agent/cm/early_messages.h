// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/time.h"
#include "management/cm/events.h"
#include "management/cm/mad.h"

namespace verbena::agent {

// Messages for a listener or a connection that is not there, kept for a moment: it may be on its way.
// Programs that agree on a port over another connection (perftest's -R) race: one is about to listen, the
// other to connect. The kernel answers so quickly that the listener wins; we are slower. A refusal that comes
// a moment later does no harm, while perftest does not survive one. And after an agent was killed its clients
// bring their listeners and connections to the next one; a peer that ends a connection meanwhile must not
// hear that it is unknown, or its program would never hear of the end. Of the agent's thread.
class EarlyMessages {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(100);
  static constexpr size_t kMax = 64;  // there is room for no more

  struct Message {
    cm::Mad mad;
    cm::Arrival arrival;
    TimePoint came;
    TimePoint deadline;  // when to look at it at the latest; it may have to wait on
  };

  // What has waited for kPatience already leaves half of it to others.
  bool has_room(Duration waited) const { return messages_.size() < (waited < kPatience ? kMax : kMax / 2); }
  // One that its sender has repeated is kept once. REQUIRES: a whole MAD; deadlines never go back
  void keep(ConstBytes mad, const cm::Arrival& arrival, TimePoint came, TimePoint deadline);
  // Of the first; kNever: there is none.
  TimePoint deadline() const { return messages_.empty() ? kNever : messages_.front().deadline; }
  std::optional<Message> take_overdue(TimePoint now);
  // A REJ by which somebody gives up a request that was never answered: it waits no more.
  void hear_rejection(ConstBytes mad, const cm::Arrival& arrival);
  std::deque<Message> take_all() { return std::exchange(messages_, {}); }

 private:
  std::deque<Message> messages_;
};

}  // namespace verbena::agent
