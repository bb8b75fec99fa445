// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "adapter/transport/route.h"
#include "base/time.h"

namespace verbena::transport {

// Token-bucket pacer for UC and UD, whose senders get no ACKs. A receiver takes longer per packet than a
// sender. Without a limit, a large message would overrun the receiver's buffer, and lose everything beyond
// its first hundreds of kilobytes. So a burst leaves at once, and the rest at a rate that the receiver can
// follow. Burst and rate are the route's; a lossless route is unlimited.
class Pacer {
 public:
  // Starts with the burst and the rate of a route, and a full burst available.
  void reset(const Traits& traits) {
    debt_ = 0;
    unbounded_ = traits.lossless;
    burst_bytes_ = std::max(traits.blind_burst_bytes, 1u);
    bytes_per_microsecond_ = std::max(traits.blind_bytes_per_microsecond, 1u);
  }

  // Lowers the rate to `bytes_per_second`, if that is less. REQUIRES: reset() was called
  void slow_down(uint64_t bytes_per_second) {
    bytes_per_microsecond_ = std::clamp<uint64_t>(bytes_per_second / 1'000'000, 1, bytes_per_microsecond_);
  }

  // Whether a packet may leave now: the burst is not used up.
  bool allows(TimePoint now) {
    if (unbounded_) return true;
    settle(now);
    return debt_ < burst_bytes_;
  }
  // When the next packet may leave, after allows() was false: when half the burst is free again, since
  // packets are cheaper in batches.
  TimePoint next() const {
    return settled_at_ + std::chrono::microseconds((debt_ - burst_bytes_ / 2) / bytes_per_microsecond_ + 1);
  }
  void sent(uint32_t bytes) {
    if (!unbounded_) debt_ += bytes;
  }

 private:
  void settle(TimePoint now) {
    const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(now - settled_at_).count();
    if (passed <= 0) return;
    debt_ -= std::min<uint64_t>(debt_, static_cast<uint64_t>(passed) * bytes_per_microsecond_);
    settled_at_ += std::chrono::microseconds(passed);
  }

  bool unbounded_ = false;
  uint64_t burst_bytes_ = 1;
  uint64_t bytes_per_microsecond_ = 1;
  uint64_t debt_ = 0;  // bytes sent that the rate has not yet covered
  TimePoint settled_at_{};
};

}  // namespace verbena::transport
