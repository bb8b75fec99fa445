// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>

#include "agent/event_loop.h"
#include "base/time.h"

namespace verbena::agent {

// Runs a task when something has caused it, but at most once per interval. For tasks that others can cause at
// any rate. A cause after a quiet interval runs the task at once. All causes within an interval run it once,
// at the interval's end. If the task throws std::bad_alloc, it runs again at the interval's end.
//
// For the agent's thread only.
class PacedTask {
 public:
  PacedTask(EventLoop& loop, Duration interval, std::function<void()> task,
            UserTurns::Clock clock = MonotonicClock::now)
      : interval_(interval),
        task_(std::move(task)),
        clock_(std::move(clock)),
        timer_(loop, [this] { cause(); }) {}

  void cause() {
    const TimePoint now = clock_();
    if (now < next_) return timer_.arm(next_);
    next_ = now + interval_;
    if (!survive_lack_of_memory(task_)) timer_.arm(next_);
  }

 private:
  const Duration interval_;
  const std::function<void()> task_;
  const UserTurns::Clock clock_;
  TimePoint next_{};  // when the task may run again
  DeadlineTimer timer_;
};

}  // namespace verbena::agent
