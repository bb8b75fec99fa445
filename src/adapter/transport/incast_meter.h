// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "adapter/congestion/incast.h"
#include "base/spin_lock.h"
#include "base/time.h"

namespace verbena::transport {

// Estimates how many senders a process's queue pairs have at a time, over paths that may lose packets: an
// incast, if they share a link. Each queue pair adds the bytes it received once per interval. The square of
// the sum, divided by the sum of the squares, is the number of senders if all sent equal parts.
//
// Any thread.
class IncastMeter {
 public:
  static constexpr Duration kInterval = std::chrono::milliseconds(32);
  static constexpr Duration kBetweenDips = std::chrono::milliseconds(800);
  // Time to the next dip when there are half as many senders again as at the last one. Doubles with each dip,
  // since newcomers may miss the first ones.
  static constexpr Duration kBeforeNewcomers = std::chrono::milliseconds(100);

  void add(uint64_t bytes, TimePoint now);
  congestion::Incast get() const { return incast_.load(std::memory_order_relaxed); }

 private:
  struct Sums {
    double bytes = 0;
    double squares = 0;
    double senders() const { return squares == 0 ? 1 : bytes * bytes / squares; }
  };
  void note(double bytes, TimePoint now);
  uint32_t senders() const;

  SpinLock lock_;
  int64_t interval_ = 0;
  Sums sums_;  // of this interval
  Sums last_;  // of the previous interval
  TimePoint dipped_{};
  Duration until_next_ = kBetweenDips;  // time from one dip to the next
  uint32_t senders_at_dip_ = 1;
  std::atomic<congestion::Incast> incast_{};
  static_assert(decltype(incast_)::is_always_lock_free);
};

// Bytes that one queue pair has received, to be added to the meter.
//
// For the shard's lock holder.
class IncastShare {
 public:
  // Counts a packet. True: its sender should be told about other senders.
  bool on_packet(IncastMeter& meter, uint64_t bytes, TimePoint now) {
    bytes_ += bytes;
    if (now >= says_at_) {
      meter.add(bytes_, now);
      bytes_ = 0;
      says_at_ = now + IncastMeter::kInterval;
    }
    const congestion::Incast incast = meter.get();
    if (incast.dip == told_.dip) return false;
    const bool had_company = told_.senders > 1;
    told_ = incast;
    return had_company || incast.senders > 1;
  }

 private:
  uint64_t bytes_ = 0;
  TimePoint says_at_{};
  congestion::Incast told_;
};

}  // namespace verbena::transport
