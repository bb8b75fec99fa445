// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace verbena::congestion {

// Spreads what is sent over time. Who is late, as timers and busy processors are, may catch up for a moment;
// what leaves at once is a burst worth a system call, and no more than the time of one at the rate.
class Pacer {
 public:
  // How long a burst may take on the path. Timers are not much finer.
  static constexpr Duration kBurstTime = std::chrono::microseconds(250);

  // `rate`: bytes a second; 0: as fast as may be. A burst is between the two sizes.
  void set(uint64_t rate, uint32_t least_burst, uint32_t max_burst) {
    rate_ = rate;
    if (rate == 0) return;
    const uint64_t bytes = rate / (std::chrono::nanoseconds(std::chrono::seconds(1)) / kBurstTime);
    burst_ = time_of(std::clamp<uint64_t>(bytes, least_burst, std::max(least_burst, max_burst)));
  }

  bool allows(TimePoint now) const { return rate_ == 0 || due_ <= now; }
  bool allows_after(uint32_t bytes, TimePoint now) const {
    return rate_ == 0 || due_after(bytes, now) <= now;
  }
  // Of a path that is too slow for a burst of so many it does not ask for one.
  bool allows_after_run(uint32_t bytes, TimePoint now) const {
    return rate_ == 0 || time_of(bytes) > burst_ || due_after(bytes, now) <= now;
  }
  void sent(uint32_t bytes, TimePoint now) {
    if (rate_ != 0) due_ = due_after(bytes, now);
  }
  // What was sent before does not count: nothing of it is thought to be on its way.
  void forget() { due_ = {}; }
  // When a burst may leave, after allows() said no.
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
