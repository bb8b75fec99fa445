// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "agent/event_loop.h"
#include "base/time.h"

namespace verbena::agent {

// One timer of the loop's, for who has many deadlines and wants to be called for the earliest. Of the agent's
// thread.
class DeadlineTimer {
 public:
  DeadlineTimer(EventLoop& loop, std::function<void()> on_timer)
      : loop_(loop), on_timer_(std::move(on_timer)) {}
  ~DeadlineTimer() {
    if (timer_) loop_.cancel(*timer_);
  }
  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;

  // To be called by then; kNever: not at all. A timer that comes too early does no harm; moving it each time
  // that a deadline is put off would.
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
