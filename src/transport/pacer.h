// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace verbena::transport {

// Bounds how fast a service without acknowledgements sends. Nothing tells such a sender that the receiver's
// socket is full, and a receiver takes longer over a packet than a sender does: unbounded, all of a large
// message beyond the first hundreds of kilobytes is lost. So a burst that an ordinary socket buffer holds
// leaves at once, and more at a rate that one processor receives.
class Pacer {
 public:
  static constexpr uint32_t kBurstBytes = 160 * 1024;
  static constexpr uint64_t kBytesPerMicrosecond = 1250;  // 10 Gb/s

  void reset() { debt_ = 0; }

  // Whether a packet may leave now.
  bool allows(TimePoint now) {
    settle(now);
    return debt_ < kBurstBytes;
  }
  // When the next may, after allows() said no: when half the burst is free again, for packets travel cheaper
  // together.
  TimePoint next() const {
    return settled_at_ + std::chrono::microseconds((debt_ - kBurstBytes / 2) / kBytesPerMicrosecond + 1);
  }
  void sent(uint32_t bytes) { debt_ += bytes; }

 private:
  void settle(TimePoint now) {
    const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(now - settled_at_).count();
    if (passed <= 0) return;
    debt_ -= std::min<uint64_t>(debt_, static_cast<uint64_t>(passed) * kBytesPerMicrosecond);
    settled_at_ += std::chrono::microseconds(passed);
  }

  uint64_t debt_ = 0;  // bytes sent and not yet worked off
  TimePoint settled_at_{};
};

}  // namespace verbena::transport
