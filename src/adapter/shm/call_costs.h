// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>

#include <sys/types.h>

#include "base/time.h"

namespace verbena::engine {

// Finds a peer that makes short system calls on a shared socket long. A message, or the removal of one, wakes
// all watches of the peer's end within the call, and the peer may have any number of them (epoll(7)): with
// 150,000 each call takes 50 ms. Nothing but the time that calls take shows that.
//
// A call may also take long because another thread had the processor. So calls are measured by processor time
// (ProcessorClock) for a while after one that took long. Reading that clock is a system call, which calls
// with other peers do without.
//
// Has no clock: the caller measures. One thread at a time.
class CallCosts {
 public:
  // A call takes a few microseconds.
  static constexpr Duration kSlow = std::chrono::milliseconds(1);
  // The peer is given up after this many calls that took long by processor time. A single one may have had to
  // wait for memory, or for the host of a virtual machine.
  static constexpr int kMaxSlow = 3;
  // Calls of long ago do not count. A peer whose calls are spaced further apart costs a hundredth of the
  // time.
  static constexpr int kWindow = 100;

  // Returns whether the next call must be measured by processor time.
  bool is_suspect(TimePoint now) const { return now < suspect_until_; }
  // Notes a call that has ended now. Returns whether the peer must be given up.
  bool note(Duration duration, bool by_processor, TimePoint now) {
    if (duration < kSlow) return false;
    if (!is_suspect(now)) slow_ = 0;
    suspect_until_ = std::max(suspect_until_, now + kWindow * duration);
    return by_processor && ++slow_ >= kMaxSlow;
  }

 private:
  TimePoint suspect_until_{};
  int slow_ = 0;
};

// Users who get no channels for a while because one of theirs was given up (CallCosts). A user may have many
// slots and processes, and each further channel would cost some long calls again.
//
// Takes no memory: of more users than it has places for, those whose time ends first are forgotten. Has no
// clock. One thread at a time.
class AvoidedUsers {
 public:
  static constexpr Duration kTime = std::chrono::seconds(60);

  void add(uid_t user, TimePoint now) {
    User* const place = std::ranges::find_if(users_, [&](const User& each) { return each.user == user; });
    User& taken = place != users_.end() ? *place : *std::ranges::min_element(users_, {}, &User::until);
    taken = {user, now + kTime};
  }
  // Returns until when the user is avoided; the past if it is not.
  TimePoint until(uid_t user) const {
    for (const User& each : users_) {
      if (each.user == user) return each.until;
    }
    return TimePoint::min();
  }

 private:
  struct User {
    uid_t user = 0;
    TimePoint until = TimePoint::min();
  };
  std::array<User, 16> users_{};
};

}  // namespace verbena::engine
