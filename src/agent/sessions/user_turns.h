// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>

#include <sys/types.h>

#include "base/time.h"

namespace verbena::agent {

// Divides the agent's time among users: deficit round robin, in which who had nothing to do goes first
// (FQ-CoDel, RFC 8290, 4.2). A user's share does not depend on how many connections it has, nor on how long
// each of its requests takes. A user that asks little waits for one piece of another's work, whatever the
// others have queued.
//
// It knows no clock: the caller measures. For the agent's thread.
class UserTurns {
 public:
  // A short piece of work. True: there is more of it, for the user's next turn.
  using Piece = std::function<bool()>;
  using Clock = std::function<TimePoint()>;

  // A user works so long in one turn, and then the next user has its turn.
  static constexpr Duration kQuantum = std::chrono::microseconds(200);

  // Queues the piece behind what the user has queued before.
  void add(uid_t user, Piece piece);
  // Runs pieces until there is none, or so much time has passed; one piece at least. Pieces may add others.
  void run(Duration most, const Clock& clock);

  bool empty() const { return pieces_ == 0; }
  bool has(uid_t user) const;

 private:
  struct User {
    std::deque<Piece> pieces;
    Duration credit{};  // less than zero: it has used more than its turn, and pays in the next ones
  };

  // The user whose turn it is. REQUIRES: there are pieces
  uid_t choose();
  void move_to_end_of_old(std::deque<uid_t>& from);

  std::map<uid_t, User> users_;  // those in the two lists
  std::deque<uid_t> new_;        // had nothing to do until now
  std::deque<uid_t> old_;        // used their first turn
  size_t pieces_ = 0;
};

}  // namespace verbena::agent
