// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/congestion/windowed_max.h"
#include "base/time.h"

namespace verbena::congestion {

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

}  // namespace verbena::congestion
