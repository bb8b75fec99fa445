// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/time.h"

namespace verbena::engine {

// Decides whether long READs of another process's private memory, in a stream of READs, go by packets or by a
// system call (process_vm_readv). With packets, both processes copy at the same time. With the system call,
// the kernel copies once, on one CPU. Packets are twice as fast between near CPUs, the system call between
// distant ones. CPU names do not tell which case applies. So both ways are tried now and then, and the
// measured rate decides.
//
// A READ after a pause is not part of a stream. It always goes by the system call, which need not wait until
// the peer has time. Pure. For the shard's lock holder.
class ReadWays {
 public:
  // In bytes. Shorter READs are not measured. In a stream they go by packets.
  static constexpr uint32_t kLong = 1 << 16;

  // Called while the READs of a stream go by packets. Returns whether the next READ should go by the system
  // call. `bytes` is how many bytes have been read since the last call; their rate is measured.
  bool leave_packets(uint64_t bytes, TimePoint now) {
    if (now >= compare_at_) compare(now);
    if (asked_at_ && now - *asked_at_ < kPauseOfPackets) packets_.add(bytes, now - *asked_at_);
    asked_at_ = now;
    return packets_.samples >= kSamplesOfPackets &&
           (kernel_.samples < kSamplesOfKernel || is_kernel_faster());
  }

  // Called when no READ is under way, for the next READ, of `bytes` bytes. Returns whether this READ should
  // go by the system call. If so, the caller calls copied() afterwards, with the times of the call's begin
  // and end.
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
  // A comparison is valid for this long.
  static constexpr Duration kHolds = std::chrono::seconds(2);
  // kPause: a READ that begins this long after the end of another does not belong to the same stream.
  // kPauseOfPackets: the rate of packets is not measured over a longer interval than this.
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
  // Returns whether the next READ belongs to the same stream as the READ before it. If that one went by
  // packets, its end is not known here, and is estimated from the measured rate of packets.
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
