// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/time.h"

namespace verbena::engine {

// Which way long READs of another process's private memory go while one follows the other: by packets, which
// both processes copy at once, or by the kernel, which copies once, on one processor. Between processors that
// are near each other packets are twice as fast, between far ones the kernel is, and neither can be told from
// what they are called. So both ways are tried now and then, and what they carry decides.
//
// A READ with a pause before it always goes by the kernel: it need not wait until the peer has time for it.
// Pure. For the shard's lock holder.
class ReadWays {
 public:
  // In bytes. What is shorter is not measured, and goes by packets where it follows others.
  static constexpr uint32_t kLong = 1 << 16;

  // READs follow each other by packets; so many bytes have since this was asked last. Whether the kernel is
  // to have the next.
  bool leave_packets(uint64_t bytes, TimePoint now) {
    if (now >= compare_at_) compare(now);
    if (asked_at_ && now - *asked_at_ < kPauseOfPackets) packets_.add(bytes, now - *asked_at_);
    asked_at_ = now;
    return packets_.samples >= kSamplesOfPackets &&
           (kernel_.samples < kSamplesOfKernel || is_kernel_faster());
  }

  // Nothing is under way, and the next READ has so many bytes. Whether it goes by the kernel; copied()
  // follows.
  bool takes(uint64_t bytes, TimePoint now) {
    const bool follows = follows_another(now);
    const auto before = std::exchange(declined_, std::nullopt);
    if (!follows) return true;
    if (now >= compare_at_) {
      compare(now);
    } else if (before && !is_compared()) {
      packets_.add(before->bytes, now - before->at);
    }
    if (kernel_.samples < kSamplesOfKernel || (is_compared() && is_kernel_faster())) return true;
    declined_ = {bytes, now};
    return false;
  }
  void copied(uint64_t bytes, TimePoint from, TimePoint until) {
    if (kernel_.samples < kSamplesOfKernel) kernel_.add(bytes, until - from);
    copied_at_ = until;
  }

 private:
  // How long what has been found out holds.
  static constexpr Duration kHolds = std::chrono::seconds(2);
  // A READ that comes so long after another does not follow it; and of packets, so many that nothing is
  // learned from how long they took.
  static constexpr Duration kPause = std::chrono::microseconds(20);
  static constexpr Duration kPauseOfPackets = std::chrono::milliseconds(200);
  static constexpr uint32_t kSamplesOfKernel = 8;  // READs, or parts of them
  static constexpr uint32_t kSamplesOfPackets =
      2;  // dozens of READs each; or each one, if one waits for the other

  struct Measured {
    uint64_t bytes = 0;
    Duration time{};
    uint32_t samples = 0;

    void add(uint64_t more, Duration took) {
      bytes += more;
      time += took;
      ++samples;
    }
    double rate() const { return static_cast<double>(bytes) / static_cast<double>(time.count() + 1); }
  };
  struct Declined {
    uint64_t bytes;
    TimePoint at;
  };

  bool is_compared() const { return packets_.samples >= kSamplesOfPackets; }
  // Of one that went by packets, and has come back, only the beginning is known.
  bool follows_another(TimePoint now) const {
    if (!declined_) return now - copied_at_ < kPause;
    if (!is_compared()) return now - declined_->at < kPauseOfPackets;
    const double expected = static_cast<double>(declined_->bytes) / packets_.rate();
    return now - declined_->at < kPause + Duration(static_cast<int64_t>(expected));
  }
  bool is_kernel_faster() const { return kernel_.rate() >= packets_.rate(); }
  void compare(TimePoint now) {
    compare_at_ = now + kHolds;
    kernel_ = packets_ = {};
    asked_at_.reset();
  }

  Measured kernel_;
  Measured packets_;
  TimePoint compare_at_{};
  TimePoint copied_at_{};
  std::optional<TimePoint> asked_at_;
  std::optional<Declined> declined_;  // the one before, if it went by packets
};

}  // namespace verbena::engine
