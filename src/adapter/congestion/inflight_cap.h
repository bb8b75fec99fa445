// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::congestion {

// Max bytes in flight over a link whose queue overflows because other senders fill it too. Shrinks after each
// round trip with an overflow, and grows a little after each without one, until the cap exceeds what would be
// sent anyway. Both changes are proportional to the cap, so the cap does not change the senders' shares of a
// queue.
//
// For the shard's lock holder.
class InflightCap {
 public:
  static constexpr uint64_t kNone = ~uint64_t{0};

  uint64_t get() const { return bytes_; }

  // The queue overflowed while `in_flight` bytes were in flight. Lowers the cap to 54/64 of these, but not
  // below `least`.
  void on_overflow(uint64_t in_flight, uint64_t least) {
    bytes_ = std::max(least, in_flight - in_flight * kLess / kParts);
  }
  // A round trip ended without overflow, while the receiver had `senders` senders. Raises the cap by 1/16 or
  // by `packet` bytes, whichever is more, times 2 / (1 + senders). Above `enough` bytes the cap is removed.
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
