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

// Runs the timers of users' objects. Each expired timer is a piece of work in its user's turns (UserTurns). A
// user may have 262,144 timers that expire at the same moment. Timers of other users and of the agent do not
// wait for these.
//
// For the agent's thread.
class UserTimers {
 public:
  using Task = std::function<void()>;
  // Names a timer. A default-constructed Id names none.
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

  // Runs the task at this time, in a turn of the user. If `when` is in the past, the timer counts as set for
  // the moment when timers last ran. So it runs after the user's timers that were due then. If this throws
  // std::bad_alloc, no timer is set.
  Id at(uid_t user, TimePoint when, Task task);
  // Cancels the timer. Does nothing if its task has begun or `id` names no timer.
  void cancel(const Id& id);
  // Returns when to call queue_due(); kNever if there are no timers.
  TimePoint next() const { return deadlines_.empty() ? kNever : deadlines_.begin()->first; }
  // Queues a piece of work for each user with expired timers. Takes the same time however many expired timers
  // a user has.
  void queue_due(TimePoint now);

 private:
  using Deadlines = std::set<std::pair<TimePoint, uid_t>>;
  struct OfUser {
    std::map<std::pair<TimePoint, uint64_t>, Task> timers;
    // The user's entry in `deadlines_`, taken out while a piece of work is queued for the user; else empty.
    // It is kept as a node of the set, because putting a node back needs no memory and cannot fail.
    Deadlines::node_type entry;
    TimePoint deadline = kNever;  // the time in the entry
  };

  OfUser& find_or_make(uid_t user);
  // Puts the time of the user's first timer into deadlines_. An entry with an earlier time stays as it is.
  // Then a piece of work runs too early, which costs less than moving the entry at each cancelled timer.
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
