// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>

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

}  // namespace verbena::congestion
