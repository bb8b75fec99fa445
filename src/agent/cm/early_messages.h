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

// Keeps messages for a listener or a connection that does not exist yet, for a moment, because it may appear
// soon. Programs that agree on a port over another connection (perftest's -R) race: one is about to listen,
// the other to connect. In the kernel the listener wins, because an answer takes less time there than here. A
// late refusal does no harm, while perftest fails at an early one. After an agent was killed, its clients
// restore their listeners and connections with the next one. A peer that ends a connection meanwhile must not
// be told that it is unknown. Otherwise the program would never learn of the end. For the agent's thread.
class EarlyMessages {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(100);
  static constexpr size_t kMax = 64;  // maximum number of messages

  struct Message {
    cm::Mad mad;
    cm::Arrival arrival;
    TimePoint came;
    TimePoint deadline;  // when to process the message; it may have to wait longer then
  };

  // Whether there is room for a message. Messages that have waited for kPatience may only use half of it.
  bool has_room(Duration waited) const { return messages_.size() < (waited < kPatience ? kMax : kMax / 2); }
  // Keeps a message; a repeated one only once. REQUIRES: a whole MAD; deadlines never decrease
  void keep(ConstBytes mad, const cm::Arrival& arrival, TimePoint came, TimePoint deadline);
  // Returns the deadline of the first message; kNever: there is none.
  TimePoint deadline() const { return messages_.empty() ? kNever : messages_.front().deadline; }
  std::optional<Message> take_overdue(TimePoint now);
  // Drops a request that its sender gives up by this REJ before it was answered.
  void hear_rejection(ConstBytes mad, const cm::Arrival& arrival);
  std::deque<Message> take_all() { return std::exchange(messages_, {}); }

 private:
  std::deque<Message> messages_;
};

}  // namespace verbena::agent
