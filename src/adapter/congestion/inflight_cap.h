// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::congestion {

// How much may be in flight over a link whose queue overflows because others fill it, too: less after each
// round trip in which it did, and a little more after each in which it did not, until that is more than would
// be sent anyway. Both by parts of what it is, so by itself it leaves the shares of a queue as they are.
//
// Bytes. For the shard's lock holder.
class InflightCap {
 public:
  static constexpr uint64_t kNone = ~uint64_t{0};

  uint64_t get() const { return bytes_; }

  // `in_flight`: what there was when it overflowed; no less than `least` is allowed.
  void on_overflow(uint64_t in_flight, uint64_t least) {
    bytes_ = std::max(least, in_flight - in_flight * kLess / kParts);
  }
  // A round trip without, of so many senders. From `enough` on there is no ceiling any more.
  void on_quiet_round(uint64_t packet, uint64_t enough, uint32_t senders) {
    if (bytes_ == kNone) return;
    bytes_ += std::max(packet, bytes_ * kMore / kParts) * 2 / (1 + senders);
    if (bytes_ > enough) bytes_ = kNone;
  }

 private:
  static constexpr uint64_t kParts = 64;
  static constexpr uint64_t kLess = 10;
  static constexpr uint64_t kMore = 4;

  uint64_t bytes_ = kNone;
};

}  // namespace verbena::congestion
