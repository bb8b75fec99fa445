// SPDX-License-Identifier: Apache-2.0
#include "agent/user_turns.h"

#include <unistd.h>

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

const SlowUsers::State* SlowUsers::find(uid_t user, TimePoint now) {
  if (users_.empty()) return nullptr;
  const auto found = users_.find(user);
  if (found == users_.end()) return nullptr;
  if (found->second.suspect_until > now) return &found->second;
  users_.erase(found);
  return nullptr;
}

bool SlowUsers::note(uid_t user, Duration excess, bool by_processor, TimePoint now) {
  if (excess <= Duration::zero() || user == 0 || user == ::geteuid()) return false;
  State& state = users_[user];
  state.suspect_until = std::max(state.suspect_until, now) + kPause * excess;
  if (!by_processor) return false;
  state.full_at = std::max(state.full_at, now) + kPause * excess;
  return state.full_at - kPause * kBudget > now;
}

void SlowUsers::pardon(Duration excess, TimePoint now) {
  for (auto& [user, state] : users_) state.full_at = std::max(state.full_at - kPause * excess, now);
}

TimePoint SlowUsers::paused_until(uid_t user, TimePoint now) {
  const State* const state = find(user, now);
  return state != nullptr ? std::max(state->full_at - kPause * kBudget, now) : now;
}

void UserTurns::add(uid_t user, Piece piece) {
  std::list<Piece> added;
  added.push_back(std::move(piece));
  if (const auto paused = paused_.find(user); paused != paused_.end()) {
    paused->second.pieces.splice(paused->second.pieces.end(), added);
  } else {
    enqueue(user, added);
  }
}

void UserTurns::enqueue(uid_t user, std::list<Piece>& added) {
  std::list<uid_t> name;
  if (!users_.contains(user)) name.push_back(user);
  User& its = users_[user];
  // From here on nothing takes memory.
  pieces_ += added.size();
  its.pieces.splice(its.pieces.end(), added);
  if (name.empty()) return;
  its.credit = kQuantum;
  new_.splice(new_.end(), name);
}

// Takes no memory.
void UserTurns::put_back(uid_t user, std::list<Piece>& piece) {
  if (const auto paused = paused_.find(user); paused != paused_.end()) {
    paused->second.pieces.splice(paused->second.pieces.end(), piece);
  } else {
    User& its = users_.at(user);
    its.pieces.splice(its.pieces.end(), piece);
    ++pieces_;
  }
}

bool UserTurns::has(uid_t user) const {
  const auto found = users_.find(user);
  if (found != users_.end() && !found->second.pieces.empty()) return true;
  const auto paused = paused_.find(user);
  return paused != paused_.end() && !paused->second.pieces.empty();
}

TimePoint UserTurns::pause_end() const {
  TimePoint first = kNever;
  for (const auto& [user, paused] : paused_) {
    if (!paused.pieces.empty()) first = std::min(first, paused.until);
  }
  return first;
}

void UserTurns::pause(uid_t user, TimePoint now) {
  Paused& paused = paused_[user];
  paused.until = slow_users_.paused_until(user, now);
  if (on_pause_) on_pause_(paused.until);
  const auto node = users_.extract(user);
  if (node.empty()) return;
  paused.pieces = std::move(node.mapped().pieces);
  pieces_ -= paused.pieces.size();
  std::erase(new_, user);
  std::erase(old_, user);
}

void UserTurns::pardon(Duration excess) {
  const TimePoint now = clock_();
  slow_users_.pardon(excess, now);
  for (auto& [user, paused] : paused_) paused.until = slow_users_.paused_until(user, now);
}

void UserTurns::end_pauses(TimePoint now) {
  for (auto next = paused_.begin(); next != paused_.end();) {
    const auto each = next++;
    if (each->second.until > now) continue;
    if (!each->second.pieces.empty()) enqueue(each->first, each->second.pieces);
    paused_.erase(each);
  }
}

UserTurns::Begun UserTurns::begin(uid_t user, TimePoint now) {
  const bool by_processor = slow_users_.is_suspect(user, now);
  return {now, by_processor ? processor_() : TimePoint{}, by_processor};
}

Duration UserTurns::end(uid_t user, const Begun& begun, TimePoint now, Duration slow) {
  const Duration took = begun.by_processor ? processor_() - begun.used : now - begun.at;
  const Duration excess = std::max(took - slow, Duration::zero());
  if (slow_users_.note(user, excess, begun.by_processor, now)) pause(user, now);
  return excess;
}

bool UserTurns::try_for(uid_t user, const Call& call, Duration slow) {
  const TimePoint now = clock_();
  if (slow_users_.paused_until(user, now) > now) return false;
  call_for(user, call, slow, now);
  return true;
}

void UserTurns::call_for(uid_t user, const Call& call, Duration slow, TimePoint before) {
  const Begun begun = begin(user, before);
  const Duration blameless_before = std::exchange(blameless_, Duration::zero());
  call();
  const TimePoint now = clock_();
  const Duration excess = end(user, begun, now, slow + blameless_);
  if (running_ == user) {
    blameless_ += blameless_before + excess;  // a piece around the call does not count this time again
    return;
  }
  blameless_ = blameless_before;
  elsewhere_ += now - before;
  take_credit(user, now - before);
}

// Takes the time of a call outside of the user's turns off the next ones. Where nobody waits, nobody owes
// anything.
void UserTurns::take_credit(uid_t user, Duration time) {
  if (pieces_ == 0 || paused_.contains(user)) return;
  survive_lack_of_memory([&] {
    std::list<Piece> none;
    enqueue(user, none);
    users_.at(user).credit -= time;
  });
}

void UserTurns::without_blame(const Call& call) {
  const TimePoint before = clock_();
  call();
  blameless_ += clock_() - before;
}

void UserTurns::move_to_end_of_old(std::list<uid_t>& from) {
  old_.splice(old_.end(), from, from.begin());
}

// Returns the user whose turn it is. A user without work stays in the list until its debt is paid. So sending
// one expensive request at a time gives no advantage.
uid_t UserTurns::choose() {
  for (;;) {
    std::list<uid_t>& list = new_.empty() ? old_ : new_;
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

void UserTurns::run(Duration most) {
  if (pieces_ == 0 && paused_.empty()) return;
  TimePoint now = clock_();
  const TimePoint until = now + most;
  end_pauses(now);
  while (pieces_ > 0) {
    const uid_t chosen = choose();
    std::list<Piece>& all = users_.at(chosen).pieces;
    std::list<Piece> piece;
    piece.splice(piece.end(), all, all.begin());
    --pieces_;
    const Begun begun = begin(chosen, now);
    elsewhere_ = blameless_ = Duration::zero();
    running_ = chosen;
    const bool has_more = run_for(chosen, piece.front());
    running_.reset();
    now = clock_();
    // A call within the piece may have begun a pause.
    if (const auto found = users_.find(chosen); found != users_.end()) {
      found->second.credit -= now - begun.at - elsewhere_;
    }
    if (has_more) put_back(chosen, piece);
    end(chosen, begun, now, slow_ + elsewhere_ + blameless_);
    if (now >= until) break;
  }
  if (pieces_ > 0) return;
  // No user waits, so debts are dropped.
  users_.clear();
  new_.clear();
  old_.clear();
}

}  // namespace verbena::agent
