// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "adapter/congestion/algorithm.h"
#include "base/spin_lock.h"
#include "base/time.h"

namespace verbena::transport {

// Encodes an Incast in bits 24 to 30 of a 32-bit word, whose lower bits are for a PSN. Bits 28 to 30 hold the
// number of the latest dip (IncastMeter). Bits 24 to 27 hold a number n, which stands for sqrt(2)^n senders.
// The encoding rounds the number of senders down.
uint32_t incast_bits(const congestion::Incast& incast);
// Decodes bits 24 to 30 of `word`. Every value is valid.
congestion::Incast incast_of_bits(uint32_t word);

// Estimates how many peers send to this process at the same time (incast), over paths that may lose packets.
// Each queue pair adds the number of bytes that it has received, once per kInterval. The estimate is the
// square of the sum of these numbers, divided by the sum of their squares. If all send equal parts, that is
// the number of senders.
//
// Also decides when a dip begins: a time at which all senders reduce their traffic together to measure the
// min RTT. A new dip number tells the senders.
//
// Thread-safe.
class IncastMeter {
 public:
  // Received bytes are added up over intervals of this length.
  static constexpr Duration kInterval = std::chrono::milliseconds(32);
  // Max time from one dip to the next.
  static constexpr Duration kBetweenDips = std::chrono::milliseconds(800);
  // Time to the next dip after the number of senders has grown to more than 1.5 times that at the last dip.
  // The time doubles with each dip, up to kBetweenDips. The first dips come often because new senders may
  // miss some.
  static constexpr Duration kBeforeNewcomers = std::chrono::milliseconds(100);

  // Adds the number of bytes that a queue pair has received since its last call. May begin a dip.
  void add(uint64_t bytes, TimePoint now);
  // Returns the latest estimate, and the number of the latest dip.
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

// Collects the bytes that one queue pair receives, and adds them to the IncastMeter once per interval.
//
// Threads: the caller holds the shard's lock.
class IncastShare {
 public:
  // Counts a packet with `bytes` bytes of payload. Returns true if the packet's sender should now get a
  // report on the number of senders. This is so once per dip, if there is more than one sender now or was at
  // the dip before.
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
