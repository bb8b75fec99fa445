// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "agent/event_loop.h"
#include "base/time.h"

namespace verbena::agent {

// A single timer of the event loop for a caller with many deadlines, which wants a call at the earliest. For
// the agent's thread only.
class DeadlineTimer {
 public:
  DeadlineTimer(EventLoop& loop, std::function<void()> on_timer)
      : loop_(loop), on_timer_(std::move(on_timer)) {}
  ~DeadlineTimer() {
    if (timer_) loop_.cancel(*timer_);
  }
  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;

  // Requests a call at `deadline`; kNever requests none. Never moves the timer to a later time: that would
  // cost work each time a deadline is extended, while an early call does no harm.
  void arm(TimePoint deadline) {
    if (timer_ && timer_->first <= deadline) return;
    if (timer_) loop_.cancel(*std::exchange(timer_, std::nullopt));
    if (deadline == kNever) return;
    timer_ = loop_.at(deadline, [this] {
      timer_.reset();
      on_timer_();
    });
  }

 private:
  EventLoop& loop_;
  const std::function<void()> on_timer_;
  std::optional<EventLoop::TimerId> timer_;
};

}  // namespace verbena::agent
