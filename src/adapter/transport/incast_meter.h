// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "adapter/congestion/incast.h"
#include "base/spin_lock.h"
#include "base/time.h"

namespace verbena::transport {

// How many senders the queue pairs of a process have at a time, by paths that may lose packets: an incast, if
// they share a link. Each queue pair says once in an interval how much it has been sent since. The square of
// the sum, by the sum of the squares, is how many senders they would be, had all equal parts.
//
// Any thread.
class IncastMeter {
 public:
  static constexpr Duration kInterval = std::chrono::milliseconds(32);
  static constexpr Duration kBetweenDips = std::chrono::milliseconds(800);
  // When there are half as many again as at the last dip; twice as long before each one from then on, as
  // those who come together do not all hear of the first.
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
  Sums sums_;  // of this interval,
  Sums last_;  // and of the one before
  TimePoint dipped_{};
  Duration until_next_ = kBetweenDips;  // dip
  uint32_t senders_at_dip_ = 1;
  std::atomic<congestion::Incast> incast_{};
  static_assert(decltype(incast_)::is_always_lock_free);
};

// What one queue pair has been sent.
//
// For the shard's lock holder.
class IncastShare {
 public:
  // True: its sender is to be told of the others.
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
