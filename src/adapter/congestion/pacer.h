// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace verbena::congestion {

// Paces the packets of a Flow at the rate that congestion control allows. (Senders without congestion control
// use transport/pacer.h.) A sender that is late, because of timers or busy processors, may catch up by two
// bursts. A burst is large enough to be worth a system call, and otherwise lasts kBurstTime at the rate.
class Pacer {
 public:
  // How long a burst may take on the path. Timers are not much finer.
  static constexpr Duration kBurstTime = std::chrono::microseconds(250);

  // `rate`: bytes per second; 0: not paced. The burst is between `least_burst` and `max_burst` bytes.
  void set(uint64_t rate, uint32_t least_burst, uint32_t max_burst) {
    rate_ = rate;
    if (rate == 0) return;
    const uint64_t bytes = rate / (std::chrono::nanoseconds(std::chrono::seconds(1)) / kBurstTime);
    burst_ = time_of(std::clamp<uint64_t>(bytes, least_burst, std::max(least_burst, max_burst)));
  }

  // Whether a packet may leave now.
  bool allows(TimePoint now) const { return rate_ == 0 || due_ <= now; }
  // Whether a packet might still leave now if `bytes` more bytes had left.
  bool allows_after(uint32_t bytes, TimePoint now) const {
    return rate_ == 0 || due_after(bytes, now) <= now;
  }
  // Like allows_after(), for a train of `bytes`. A train longer than the burst is always allowed: a slow path
  // need not save up for it.
  bool allows_after_run(uint32_t bytes, TimePoint now) const {
    return rate_ == 0 || time_of(bytes) > burst_ || due_after(bytes, now) <= now;
  }
  void sent(uint32_t bytes, TimePoint now) {
    if (rate_ != 0) due_ = due_after(bytes, now);
  }
  // Allows packets at once again. Called after a timeout: nothing is believed to be in flight then.
  void forget() { due_ = {}; }
  // When a whole burst may leave, after allows() was false.
  TimePoint next() const { return due_ + burst_; }

 private:
  TimePoint due_after(uint32_t bytes, TimePoint now) const {
    return std::max(due_, now - 2 * burst_) + time_of(bytes);
  }
  Duration time_of(uint64_t bytes) const { return Duration(bytes * 1'000'000'000 / rate_); }

  uint64_t rate_ = 0;
  Duration burst_{0};
  TimePoint due_{};
};

}  // namespace verbena::congestion
