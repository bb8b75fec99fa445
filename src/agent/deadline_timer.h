// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "agent/event_loop.h"
#include "agent/lack_of_memory.h"
#include "base/time.h"

namespace verbena::agent {

// A single event-loop timer for an object with many deadlines. The timer calls `on_timer` at the earliest
// one, and the object then calls arm() with its next deadline. For the agent's thread only.
class DeadlineTimer {
 public:
  DeadlineTimer(EventLoop& loop, std::function<void()> on_timer)
      : loop_(loop), on_timer_(std::move(on_timer)) {}
  ~DeadlineTimer() {
    if (timer_) loop_.cancel(*timer_);
  }
  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;

  // Makes the timer call `on_timer` at `deadline` or earlier. Does not move an earlier timer: an early call
  // costs less than a move at each extended deadline. kNever neither sets nor cancels a timer.
  void arm(TimePoint deadline) {
    if (timer_ && timer_->first <= deadline) return;
    if (timer_) loop_.cancel(*std::exchange(timer_, std::nullopt));
    if (deadline == kNever) return;
    timer_ = loop_.at(deadline, [this] {
      timer_.reset();
      if (!survive_lack_of_memory(on_timer_)) arm(MonotonicClock::now() + kPauseWithoutMemory);
    });
  }

 private:
  static constexpr Duration kPauseWithoutMemory = std::chrono::milliseconds(100);

  EventLoop& loop_;
  const std::function<void()> on_timer_;
  std::optional<EventLoop::TimerId> timer_;
};

}  // namespace verbena::agent
