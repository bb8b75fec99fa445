// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include <sys/types.h>

#include "agent/event_loop.h"

namespace verbena::agent {

// An event loop with a time of its own, which can make a user pause (SlowUsers).
class PausingLoop {
 public:
  EventLoop& loop() { return loop_; }
  // Has the user's messages take long until the user pauses.
  void make_pause(uid_t user) {
    each_ = UserTurns::kSlow;
    while (loop_.try_send_to(user, [] {})) {
    }
    each_ = {};
  }
  void end_pauses() { time_ += std::chrono::minutes(1); }

 private:
  TimePoint now() { return time_ += each_; }

  TimePoint time_ = MonotonicClock::now();
  Duration each_{};  // duration of each reading of the clock
  EventLoop loop_{EventLoop::kPerRound, [this] { return now(); }, [this] { return now(); }};
};

}  // namespace verbena::agent
