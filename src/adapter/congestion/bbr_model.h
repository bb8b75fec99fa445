// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "adapter/congestion/windowed_max.h"
#include "base/time.h"

namespace verbena::congestion {

// Min RTT: the round-trip time without a queue. It is the least of the rounds' mean RTTs, since single
// packets may take a shorter path. An old minimum must be confirmed in a dip (BBR's ProbeRTT): a short time
// with little in flight. The first minimum may have included a queue, our own or another sender's. So dips
// come soon at first, and stay frequent while they find lower values.
//
// For the shard's lock holder.
class MinRtt {
 public:
  static constexpr Duration kDip = std::chrono::milliseconds(20);  // least length of a dip
  static constexpr Duration kSoon = 20 * kDip;                     // time between dips at first
  static constexpr Duration kLasts = std::chrono::seconds(10);     // time between dips at most
  static constexpr int64_t kRoundTripsBetween = 100;  // least time between dips, in RTTs, up to kLasts
  static constexpr int64_t kLeastSamples = 8;         // for the mean of a round

  // The min RTT; zero if it is not known yet.
  Duration get() const { return least_; }
  // Mean RTT of the last round.
  Duration latest() const { return latest_; }

  void on_sample(Duration sample, TimePoint now) {
    sum_ += sample;
    ++samples_;
    if (least_.count() == 0) found(sample, now);
  }
  // A round has ended. Returns true if a dip should begin now, as the minimum is old. Returns true only with
  // `may_dip`.
  bool on_round(TimePoint now, bool may_dip) {
    if (samples_ < kLeastSamples) return false;
    latest_ = std::exchange(sum_, Duration(0)) / std::exchange(samples_, 0);
    if (latest_ <= least_ || !has_mean_) {
      has_mean_ = true;
      found(latest_, now);
      return false;
    }
    const Duration lasts = std::min(std::max(patience_, kRoundTripsBetween * least_), kLasts);
    if (now - since_ <= lasts || !may_dip) return false;
    since_ = now;
    return true;
  }
  // The min RTT before the dip.
  Duration before_dip() const { return before_dip_; }
  void begin_dip() { before_dip_ = std::exchange(least_, latest_); }
  void end_dip(TimePoint now) {
    patience_ = least_ < before_dip_ / 2 ? kSoon : std::min(2 * patience_, kLasts);
    since_ = now;
  }

 private:
  void found(Duration least, TimePoint now) {
    least_ = least;
    since_ = now;
  }

  Duration least_{0};
  Duration latest_{0};
  Duration before_dip_{0};
  Duration patience_ = kSoon;
  TimePoint since_{};
  // Sum and number of the samples since the last mean: of several rounds if these have few samples.
  Duration sum_{0};
  int64_t samples_ = 0;
  bool has_mean_ = false;
};

// Measures ACK aggregation, like Linux's BBR: the largest burst of arrivals in the last rounds beyond what
// the path's rate explains. Over Wi-Fi, or from a process that waits for a processor, nothing arrives for
// some time and then everything at once. The sender must have this much in flight beyond what the path holds,
// or it runs dry during the pauses.
class AckAggregation {
 public:
  // The largest excess of the last WindowedMax::kRounds rounds, in bytes.
  uint64_t get() const { return max_.get(); }

  // `arrived` more bytes have arrived in round `round`, over a path with a rate of `rate` bytes per second.
  void on_arrival(uint64_t round, uint64_t arrived, uint64_t rate, TimePoint now) {
    uint64_t explained = explained_by(rate, now);
    // Starts a new measurement: without it, a burst of long ago would be hidden by what has arrived evenly
    // since.
    if (arrived_ <= explained || round - round_ >= WindowedMax::kRounds) {
      round_ = round;
      since_ = now;
      arrived_ = explained = 0;
    }
    arrived_ += arrived;
    max_.add(round, arrived_ - explained);
  }

 private:
  uint64_t explained_by(uint64_t rate, TimePoint now) const {
    const double seconds = std::chrono::duration<double>(now - since_).count();
    return static_cast<uint64_t>(static_cast<double>(rate) * seconds);
  }

  WindowedMax max_;
  // Round, time and bytes since the current measurement began.
  uint64_t round_ = 0;
  TimePoint since_{};
  uint64_t arrived_ = 0;
};

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
