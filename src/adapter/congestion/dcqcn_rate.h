// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace verbena::congestion {

// How fast a sender may be whose packets switches on the way have marked: the reaction point of Zhu et al.,
// "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015, DCQCN), with a round trip for its
// timers. A notice takes off a part of the rate, larger the more notices there have been of late; without
// them half of what was taken off comes back in each of five rounds, and then a little more in each.
//
// Rates are bytes a second. For the shard's lock holder.
class DcqcnRate {
 public:
  // A megabit a second: no notices make it slower. Anybody can send them, and who may not send does not even
  // find out that its peer is gone.
  static constexpr uint64_t kLeast = 125'000;

  // 0: nothing has been marked for long, any rate will do.
  uint64_t limit() const { return limit_; }

  // A notice has come. `rate`: what is sent at now.
  void on_mark(uint64_t rate) {
    if (rate == 0 || marked_in_round_) return;  // what is in flight could not know of the first
    marked_in_round_ = true;
    share_ += (1 - share_) * kGain;
    target_ = limit_ != 0 && limit_ < rate ? limit_ : rate;
    const auto less = static_cast<uint64_t>(static_cast<double>(target_) * (1 - share_ / 2));
    limit_ = std::max(less, std::min(target_, kLeast));
    rounds_ = 0;
  }
  // A round trip is over; `bandwidth`: what the path is known to carry.
  void on_round(uint64_t bandwidth) {
    if (limit_ == 0) return;
    if (marked_in_round_) {
      marked_in_round_ = false;
      return;
    }
    share_ *= 1 - kGain;
    if (++rounds_ > kFastRounds) target_ += bandwidth / kSlowSteps;
    limit_ = (limit_ + target_ + 1) / 2;
    if (limit_ > bandwidth + bandwidth / 2) *this = DcqcnRate();
  }

 private:
  static constexpr double kGain = 1.0 / 16;
  static constexpr uint32_t kFastRounds = 5;
  static constexpr uint64_t kSlowSteps = 64;

  uint64_t limit_ = 0;
  uint64_t target_ = 0;
  double share_ = 1;     // of packets that are marked, as far as notices tell
  uint32_t rounds_ = 0;  // since the last notice
  bool marked_in_round_ = false;
};

}  // namespace verbena::congestion
