// SPDX-License-Identifier: Apache-2.0
#include "agent/user_timers.h"

#include <algorithm>
#include <chrono>

namespace verbena::agent {

namespace {

// Time until a piece is queued again for which there was no memory.
constexpr Duration kPauseWithoutMemory = std::chrono::milliseconds(100);

}  // namespace

UserTimers::Id UserTimers::at(uid_t user, TimePoint when, Task task) {
  OfUser& its = find_or_make(user);
  const Id id{user, std::max(when, now_), ++next_number_};
  its.timers.emplace(std::pair(id.when, id.number), std::move(task));
  if (its.entry.empty()) arm(user, its);
  return id;
}

UserTimers::OfUser& UserTimers::find_or_make(uid_t user) {
  if (const auto found = users_.find(user); found != users_.end()) return found->second;
  Deadlines entry;
  entry.emplace(kNever, user);
  OfUser& its = users_[user];
  deadlines_.merge(entry);
  return its;
}

void UserTimers::arm(uid_t user, OfUser& its) {
  const TimePoint first = its.timers.begin()->first.first;
  if (its.entry.empty()) {
    if (its.deadline <= first) return;
    its.entry = deadlines_.extract({its.deadline, user});
  }
  its.deadline = its.entry.value().first = first;
  deadlines_.insert(std::move(its.entry));
}

void UserTimers::cancel(const Id& id) {
  const auto user = users_.find(id.user);
  if (user == users_.end()) return;
  OfUser& its = user->second;
  its.timers.erase({id.when, id.number});
  // A queued piece of work still needs the user.
  if (!its.timers.empty() || !its.entry.empty()) return;
  deadlines_.erase({its.deadline, id.user});
  users_.erase(user);
}

void UserTimers::queue_due(TimePoint now) {
  now_ = now;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    auto entry = deadlines_.extract(deadlines_.begin());
    const uid_t user = entry.value().second;
    OfUser& its = users_.at(user);
    if (survive_lack_of_memory([&] { turns_.add(user, [this, user] { return run_one(user); }); })) {
      its.entry = std::move(entry);
    } else {
      its.deadline = entry.value().first = now + kPauseWithoutMemory;
      deadlines_.insert(std::move(entry));
    }
  }
}

// Runs the user's first expired timer. The user's entry is taken out while the task runs, so the task may set
// and cancel timers.
bool UserTimers::run_one(uid_t user) {
  const auto found = users_.find(user);
  OfUser& its = found->second;
  now_ = clock_();
  const auto is_due = [&] { return !its.timers.empty() && its.timers.begin()->first.first <= now_; };
  if (is_due()) {
    const auto timer = its.timers.extract(its.timers.begin());
    survive_lack_of_memory(timer.mapped());
  }
  if (is_due()) return true;
  if (its.timers.empty()) {
    users_.erase(found);
  } else {
    arm(user, its);
  }
  return false;
}

}  // namespace verbena::agent
