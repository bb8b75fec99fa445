// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/user_turns.h"

#include <utility>

#include "agent/lack_of_memory.h"
#include "agent/sessions/acting_for.h"

namespace verbena::agent {
namespace {

// A piece for which there is not enough memory is left as it is.
bool run_for(uid_t user, const UserTurns::Piece& piece) {
  const ActingFor acting(user);
  bool has_more = false;
  survive_lack_of_memory([&] { has_more = piece(); });
  return has_more;
}

}  // namespace

void UserTurns::add(uid_t user, Piece piece) {
  const auto [entry, is_new] = users_.try_emplace(user);
  entry->second.pieces.push_back(std::move(piece));
  ++pieces_;
  if (!is_new) return;
  entry->second.credit = kQuantum;
  new_.push_back(user);
}

bool UserTurns::has(uid_t user) const {
  const auto found = users_.find(user);
  return found != users_.end() && !found->second.pieces.empty();
}

void UserTurns::move_to_end_of_old(std::deque<uid_t>& from) {
  const uid_t user = from.front();
  from.pop_front();
  old_.push_back(user);
}

// Returns the user whose turn it is. A user without work stays in the list until its debt is paid. So sending
// one expensive request at a time gives no advantage.
uid_t UserTurns::choose() {
  for (;;) {
    std::deque<uid_t>& list = new_.empty() ? old_ : new_;
    const uid_t user = list.front();
    User& its = users_.at(user);
    if (its.credit <= Duration::zero()) {
      its.credit += kQuantum;
      move_to_end_of_old(list);
    } else if (!its.pieces.empty()) {
      return user;
    } else if (&list == &new_) {
      move_to_end_of_old(list);
    } else {
      users_.erase(user);
      list.pop_front();
    }
  }
}

void UserTurns::run(Duration most, const Clock& clock) {
  TimePoint now = clock();
  const TimePoint end = now + most;
  while (pieces_ > 0) {
    const uid_t chosen = choose();
    User& user = users_.at(chosen);
    Piece piece = std::move(user.pieces.front());
    user.pieces.pop_front();
    --pieces_;
    const bool has_more = run_for(chosen, piece);
    const TimePoint begun = std::exchange(now, clock());
    user.credit -= now - begun;
    if (has_more) {
      user.pieces.push_back(std::move(piece));
      ++pieces_;
    }
    if (now >= end) break;
  }
  if (pieces_ > 0) return;
  // No user waits, so debts are dropped.
  users_.clear();
  new_.clear();
  old_.clear();
}

}  // namespace verbena::agent
