// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <utility>

#include "agent/event_loop.h"
#include "base/time.h"

namespace verbena::agent {

// Runs a task when something has caused it, but not more often than others may make it run. For tasks that
// others can cause at any rate. kBurst runs may follow each other at once, as when an administrator sets up a
// network; each interval allows one more. All causes in between run the task once, as soon as it may run. So
// does a run that threw std::bad_alloc.
//
// For the agent's thread only.
class PacedTask {
 public:
  static constexpr int kBurst = 8;

  PacedTask(EventLoop& loop, Duration interval, std::function<void()> task,
            UserTurns::Clock clock = MonotonicClock::now)
      : interval_(interval),
        task_(std::move(task)),
        clock_(std::move(clock)),
        timer_(loop, [this] { cause(); }) {}

  void cause() {
    const TimePoint now = clock_();
    if (now < next()) return timer_.arm(next());
    rested_at_ = std::max(rested_at_, now) + interval_;
    if (!survive_lack_of_memory(task_)) timer_.arm(next());
  }

 private:
  TimePoint next() const { return rested_at_ - (kBurst - 1) * interval_; }

  const Duration interval_;
  const std::function<void()> task_;
  const UserTurns::Clock clock_;
  TimePoint rested_at_{};  // when a whole burst may run again
  DeadlineTimer timer_;
};

}  // namespace verbena::agent
