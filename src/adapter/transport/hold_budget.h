// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

#include "base/time.h"

namespace verbena::transport {

// Limits how long the oldest request of a UD queue pair keeps the requests behind it waiting, while they go
// to other destinations. A receiver that reports slowly, or a stopped process on this host, could otherwise
// stop the traffic to everybody else. Waiting uses the budget up: at most 250 ms in a row, and three quarters
// of the time in the long run. A busy machine may leave a process without the processor for tenths of a
// second, so shorter limits would lose datagrams to honest receivers.
//
// Reads no clock. For the shard's lock holder.
class HoldBudget {
 public:
  static constexpr Duration kMax = std::chrono::milliseconds(250);
  // Time of waiting that is earned by the same time without.
  static constexpr int kEarned = 3;

  // Call when the oldest request has to wait, or still has to.
  void begin(TimePoint now) {
    if (is_holding()) return;
    budget_ = std::min<Duration>(kMax, budget_ + kEarned * std::min<Duration>(kMax, now - ended_at_));
    until_ = now + budget_;
    since_ = now;
  }
  // Call when the oldest request waits no more.
  void end(TimePoint now) {
    if (!is_holding()) return;
    budget_ = std::max(Duration(0), budget_ - (now - since_));
    ended_at_ = now;
    until_ = kNever;
  }
  // When the request must not wait any longer; kNever if none waits.
  TimePoint until() const { return until_; }

 private:
  bool is_holding() const { return until_ != kNever; }

  Duration budget_ = kMax;
  TimePoint ended_at_{};
  TimePoint since_{};
  TimePoint until_ = kNever;
};

}  // namespace verbena::transport
