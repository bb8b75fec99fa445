// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "commands/perf/clock.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Limits the rate of messages (--rate_limit): lets one burst go in each interval of a fixed length. Without a
// limit, lets all messages go.
class RateLimit {
 public:
  RateLimit(const Parameters& parameters, std::uint64_t size) : burst_(parameters.burst) {
    if (parameters.rate_limit == 0) return;
    interval_ = static_cast<std::uint64_t>(Clock().ticks_per_microsecond() * 1e6 * burst_ /
                                           messages_per_second(parameters, size));
  }

  // Returns whether the next message may go now. REQUIRES: count() has been called for all messages that have
  // gone
  bool may_send() {
    if (interval_ == 0 || sent_ < burst_) return true;
    const std::uint64_t now = ticks();
    if (now < next_) return false;
    next_ = now + interval_;
    sent_ = 0;
    return true;
  }
  void count(std::uint32_t messages) { sent_ += messages; }

 private:
  static double messages_per_second(const Parameters& parameters, std::uint64_t size) {
    switch (parameters.rate_unit) {
      case RateUnit::kMessages:
        return parameters.rate_limit;
      case RateUnit::kMebibytes:
        return parameters.rate_limit * kMebibyte / static_cast<double>(size);
      default:
        return parameters.rate_limit * kGigabit / static_cast<double>(size);
    }
  }

  const std::uint32_t burst_;
  std::uint64_t interval_ = 0;  // ticks between bursts; 0: no limit
  std::uint64_t next_ = 0;
  std::uint32_t sent_ = ~0U / 2;  // messages of the burst under way; at first enough to begin a burst
};

}  // namespace verbena::perf
