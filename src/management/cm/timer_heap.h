// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "management/cm/connection.h"

namespace verbena::cm {

// The connections with a timer, in a binary heap by Connection::expires. Most connections have no timer,
// since an established one waits for nothing.
class TimerHeap {
 public:
  // Returns when the first timer expires; kNever if none runs.
  TimePoint next() const { return heap_.empty() ? kNever : heap_.front()->expires; }
  // Returns the connection whose timer expires first. REQUIRES: next() != kNever
  Connection& front() { return *heap_.front(); }

  void set(Connection& connection, TimePoint when) {
    if (connection.timer_position == Connection::kNoTimer) {
      connection.timer_position = heap_.size();
      heap_.push_back(&connection);
    }
    connection.expires = when;
    settle(connection.timer_position);
  }

  void cancel(Connection& connection) {
    const size_t position = connection.timer_position;
    if (position == Connection::kNoTimer) return;
    connection.timer_position = Connection::kNoTimer;
    connection.expires = kNever;
    Connection* const last = heap_.back();
    heap_.pop_back();
    if (last == &connection) return;
    place(position, last);
    settle(position);
  }

 private:
  void place(size_t position, Connection* connection) {
    heap_[position] = connection;
    connection->timer_position = position;
  }

  bool earlier(size_t a, size_t b) const { return heap_[a]->expires < heap_[b]->expires; }

  void exchange(size_t a, size_t b) {
    Connection* const connection = heap_[a];
    place(a, heap_[b]);
    place(b, connection);
  }

  void settle(size_t at) {
    for (; at > 0 && earlier(at, (at - 1) / 2); at = (at - 1) / 2) exchange(at, (at - 1) / 2);
    for (;;) {
      size_t least = at;
      for (const size_t child : {2 * at + 1, 2 * at + 2}) {
        if (child < heap_.size() && earlier(child, least)) least = child;
      }
      if (least == at) return;
      exchange(at, least);
      at = least;
    }
  }

  std::vector<Connection*> heap_;
};

}  // namespace verbena::cm
