// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>

#include <sys/types.h>

#include "base/time.h"

namespace verbena::engine {

// Finds a peer that makes short system calls on shared sockets long. A message, or the removal of one, wakes
// all watches of the peer's end within the call, and the peer may have any number of them (epoll(7)): with
// 150,000 each call takes 50 ms. Nothing but the time that calls take shows that.
//
// Only the time above kNormal counts, as a leaky bucket: calls may take a thousandth of the time above what
// is normal, and a few milliseconds at once. A peer has one bucket for all its channels, also for later ones.
//
// A call may also take long because another thread had the processor. So calls are measured by processor time
// (ProcessorClock) for a while after one that took long. Reading that clock is a system call, which calls
// with other peers do without.
//
// Has no clock: the caller measures. One thread at a time.
class CallCosts {
 public:
  // A call takes a few microseconds, under an emulator some ten.
  static constexpr Duration kNormal = std::chrono::microseconds(100);
  static constexpr Duration kBurst = std::chrono::milliseconds(3);
  static constexpr int kShare = 1000;
  // The peer is given up after this many calls that took long by processor time. Fewer may have had to wait
  // for memory, or for the host of a virtual machine.
  static constexpr int kMaxSlow = 4;
  // Calls are measured by processor time for this long.
  static constexpr Duration kWindow = std::chrono::seconds(1);

  // Returns whether the next call must be measured by processor time.
  bool is_suspect(TimePoint now) const { return now < suspect_until_; }
  // Notes a call that has ended now. Returns whether the peer must be given up.
  bool note(Duration duration, bool by_processor, TimePoint now) {
    if (duration <= kNormal) return false;
    suspect_until_ = std::max(suspect_until_, now + kWindow);
    if (!by_processor) return false;
    const Duration leaked = (now - filled_at_) / kShare;
    if (leaked >= level_) slow_ = 0;
    level_ = std::max(level_ - leaked, Duration::zero()) + (duration - kNormal);
    filled_at_ = now;
    return ++slow_ >= kMaxSlow && level_ > kBurst;
  }

 private:
  TimePoint suspect_until_{};
  TimePoint filled_at_{};
  Duration level_{};
  int slow_ = 0;  // calls since the bucket was empty
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
