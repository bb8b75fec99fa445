// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <sys/types.h>

#include "agent/user_turns.h"
#include "base/time.h"

namespace verbena::agent {

// Timers of users' objects. The expired timers of a user are pieces of work in the user's turns. A user may
// have 262,144 that expire at one moment: the timers of others and of the agent do not wait for them.
//
// For the agent's thread.
class UserTimers {
 public:
  using Task = std::function<void()>;
  // The default names no timer.
  struct Id {
    uid_t user = 0;
    TimePoint when{};
    uint64_t number = 0;
  };

  // REQUIRES: `turns` outlives this object
  explicit UserTimers(UserTurns& turns, UserTurns::Clock clock = MonotonicClock::now)
      : turns_(turns), clock_(std::move(clock)) {}
  UserTimers(const UserTimers&) = delete;
  UserTimers& operator=(const UserTimers&) = delete;

  // Runs the task at this time, in a turn of the user. One for the past goes behind the user's timers that
  // are due already. If this throws std::bad_alloc, no timer is set.
  Id at(uid_t user, TimePoint when, Task task);
  // Ignores timers whose task has begun.
  void cancel(const Id& id);
  // Returns when to call queue_due(); kNever if there are no timers.
  TimePoint next() const { return deadlines_.empty() ? kNever : deadlines_.begin()->first; }
  // Queues a piece of work for each user with expired timers. Takes the same time however many these are.
  void queue_due(TimePoint now);

 private:
  using Deadlines = std::set<std::pair<TimePoint, uid_t>>;
  struct OfUser {
    std::map<std::pair<TimePoint, uint64_t>, Task> timers;
    // The user's entry of `deadlines_`, while it is not there: a piece is queued. A node of the set, because
    // its return takes no memory.
    Deadlines::node_type entry;
    TimePoint deadline = kNever;  // in the entry
  };

  OfUser& find_or_make(uid_t user);
  // Enters the user's first deadline. Does not move an earlier one: an early piece of work costs less than a
  // move at each cancelled timer.
  void arm(uid_t user, OfUser& its);
  bool run_one(uid_t user);

  UserTurns& turns_;
  const UserTurns::Clock clock_;
  TimePoint now_{};  // of the last call of queue_due() or run_one()
  uint64_t next_number_ = 0;
  std::map<uid_t, OfUser> users_;
  Deadlines deadlines_;  // of users for whom no piece is queued
};

}  // namespace verbena::agent
