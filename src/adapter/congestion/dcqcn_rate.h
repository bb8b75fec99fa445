// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace verbena::congestion {

// DCQCN rate limit of a sender whose packets switches have marked. The reaction point of Zhu et al.,
// "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015), with one round trip as its timer. A
// CNP reduces the rate by a share that is larger the more CNPs came recently. Each later round without a CNP
// gives back half of what remains of the reduction. From the sixth round on, each round also adds 1/64 of the
// path's bandwidth to the rate that is aimed at.
//
// Rates are bytes per second. For the shard's lock holder.
class DcqcnRate {
 public:
  // The least rate, one megabit per second: CNPs never reduce it further. Anybody can forge CNPs, and a QP
  // that may not send never notices that its peer is gone.
  static constexpr uint64_t kLeast = 125'000;

  // Max rate; 0 if there is no limit, as no CNP has come for long.
  uint64_t limit() const { return limit_; }

  // A CNP came while the sender sent at `rate`. Only the first CNP in a round trip counts.
  void on_mark(uint64_t rate) {
    if (rate == 0 || marked_in_round_) return;  // packets in flight cannot know of the first CNP
    marked_in_round_ = true;
    share_ += (1 - share_) * kGain;
    target_ = limit_ != 0 && limit_ < rate ? limit_ : rate;
    const auto less = static_cast<uint64_t>(static_cast<double>(target_) * (1 - share_ / 2));
    limit_ = std::max(less, std::min(target_, kLeast));
    rounds_ = 0;
  }
  // A round trip has ended. `bandwidth` is the path's measured bandwidth; the limit ends once it exceeds that
  // by half.
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
  double share_ = 1;     // estimated share of packets that are marked
  uint32_t rounds_ = 0;  // since the last CNP
  bool marked_in_round_ = false;
};

}  // namespace verbena::congestion
