// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include <sys/types.h>

#include "base/time.h"

namespace verbena::agent {

// Marks this thread as acting for a user while the object exists. Lines that the thread logs count against
// the user's share of the log (LogLimit).
class ActingFor {
 public:
  explicit ActingFor(uid_t user) : before_(std::exchange(current_, user)) {}
  ~ActingFor() { current_ = before_; }
  ActingFor(const ActingFor&) = delete;
  ActingFor& operator=(const ActingFor&) = delete;

  // Returns the user for whom this thread acts, or nullopt if the thread acts for the agent itself.
  static std::optional<uid_t> user() { return current_; }

 private:
  static inline thread_local std::optional<uid_t> current_;
  const std::optional<uid_t> before_;
};

// Divides the agent's time among users: deficit round robin, in which users that had no work go first
// (FQ-CoDel, RFC 8290, 4.2). A user's share does not depend on its number of connections, nor on how long its
// requests take. A user with little work waits for at most one piece of another user's work, whatever the
// others have queued.
//
// Has no clock: the caller measures. For the agent's thread.
class UserTurns {
 public:
  // A short piece of work. Returns whether more of it is left for the user's next turn.
  using Piece = std::function<bool()>;
  using Clock = std::function<TimePoint()>;

  // Time that a user's work may take per turn.
  static constexpr Duration kQuantum = std::chrono::microseconds(200);

  // Queues the piece after the user's earlier ones.
  void add(uid_t user, Piece piece);
  // Runs at least one piece, if there is any, and stops when none is left or `most` has passed. Pieces may
  // add others. `clock`: returns the current time.
  void run(Duration most, const Clock& clock);

  bool empty() const { return pieces_ == 0; }
  bool has(uid_t user) const;

 private:
  struct User {
    std::deque<Piece> pieces;
    Duration credit{};  // time left in this turn; below zero, it is taken off the next turns
  };

  // Returns the user whose turn it is. REQUIRES: there are pieces
  uid_t choose();
  void move_to_end_of_old(std::deque<uid_t>& from);

  std::map<uid_t, User> users_;  // users in `new_` or `old_`
  std::deque<uid_t> new_;        // users that had no work until now
  std::deque<uid_t> old_;        // users after their first turn
  size_t pieces_ = 0;
};

}  // namespace verbena::agent
