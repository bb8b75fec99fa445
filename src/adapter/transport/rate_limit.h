// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace verbena::transport {

// Packet pacing (ibv_modify_qp_rate_limit(3)): when the next frame may be sent. Each byte takes its time at
// the rate. Unused time is saved up for one burst at most.
class RateLimit {
 public:
  // Default burst, as the time that it takes at the rate: about as long as a busy machine keeps a sender
  // waiting. A default burst has at least kLeastBurstBytes.
  static constexpr Duration kDefaultBurst = std::chrono::milliseconds(1);
  static constexpr uint32_t kLeastBurstBytes = 16 * 1024;

  // Sets the rate in kilobits per second (0: unlimited) and the burst in bytes (0: the default).
  void set(uint32_t rate, uint32_t burst) {
    rate_ = rate;
    burst_ = burst != 0 ? time_of(burst) : std::max(kDefaultBurst, time_of(kLeastBurstBytes));
    due_ = TimePoint{};
  }
  uint32_t rate() const { return rate_; }

  bool may_send(TimePoint now) const { return rate_ == 0 || due_ <= now; }
  // Notes that a frame of `bytes` bytes leaves. REQUIRES: may_send(now)
  void sent(uint32_t bytes, TimePoint now) {
    if (rate_ != 0) due_ = std::max(due_, now - burst_) + time_of(bytes);
  }
  // When may_send() becomes true, if it is false.
  TimePoint due() const { return due_; }

 private:
  Duration time_of(uint32_t bytes) const {
    return rate_ == 0 ? Duration{} : Duration(std::chrono::nanoseconds(uint64_t{bytes} * 8'000'000 / rate_));
  }

  uint32_t rate_ = 0;
  Duration burst_{};
  TimePoint due_{};
};

}  // namespace verbena::transport
