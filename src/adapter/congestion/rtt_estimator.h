// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "base/time.h"

namespace verbena::congestion {

// RTT estimator: smoothed RTT and its mean deviation, as in RFC 6298.
class RttEstimator {
 public:
  void on_sample(Duration sample) {
    latest_ = sample;
    if (!is_known_) {
      is_known_ = true;
      least_ = usual_ = smoothed_ = sample;
      deviation_ = sample / 2;
      return;
    }
    least_ = std::min(least_, sample);
    deviation_ += (std::chrono::abs(smoothed_ - sample) - deviation_) / 4;
    smoothed_ += (sample - smoothed_) / 8;
    usual_ = std::min(usual_ + usual_ / kUsualLasts, smoothed_);
  }

  bool is_known() const { return is_known_; }
  Duration smoothed() const { return smoothed_; }
  Duration deviation() const { return deviation_; }
  Duration least() const { return least_; }
  // Recent minimum of the smoothed RTT: the RTT without a queue, whatever path single packets took.
  Duration usual() const { return usual_; }
  Duration latest() const { return latest_; }
  // Time after which an answer is not expected any more: the smoothed RTT plus four mean deviations.
  Duration timeout() const { return smoothed_ + 4 * deviation_; }

 private:
  static constexpr int64_t kUsualLasts = 4096;  // samples: usual_ rises by 1/kUsualLasts per sample

  bool is_known_ = false;
  Duration smoothed_{0};
  Duration deviation_{0};
  Duration least_{0};
  Duration usual_{0};
  Duration latest_{0};
};

}  // namespace verbena::congestion
