// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/congestion/windowed_max.h"
#include "base/time.h"

namespace verbena::congestion {

// How much more than the path's rate explains has arrived at once, at most, in the last rounds: over Wi-Fi,
// or from a process that gets no processor for a while, nothing comes for some time, and then all of it. So
// much has to be in flight besides what the path holds, or nothing is left to send while nothing comes. (The
// idea is that of Linux's BBR, which calls it the aggregation of acknowledgements.)
//
// For the shard's lock holder.
class AckAggregation {
 public:
  // Bytes.
  uint64_t get() const { return max_.get(); }

  // `arrived` more, over a path that brings `rate` bytes a second.
  void on_arrival(uint64_t round, uint64_t arrived, uint64_t rate, TimePoint now) {
    uint64_t explained = explained_by(rate, now);
    // A lump of long ago is not to be seen in what has come evenly since.
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
  // Since it began to be counted.
  uint64_t round_ = 0;
  TimePoint since_{};
  uint64_t arrived_ = 0;
};

}  // namespace verbena::congestion
