// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/counters.h"

#include "adapter/congestion/flow.h"

namespace verbena::transport {

void show_path(PathNumbers& numbers, const congestion::Flow* flow, uint64_t in_flight) {
  const auto show = [&](PathNumber which, uint64_t value) {
    numbers[which].store(value, std::memory_order_relaxed);
  };
  static constexpr congestion::RttEstimator kUnknown;
  const congestion::RttEstimator& round_trip = flow != nullptr ? flow->round_trip() : kUnknown;
  show(kPathRoundTrip, static_cast<uint64_t>(round_trip.smoothed().count()));
  show(kPathUsualRoundTrip, static_cast<uint64_t>(round_trip.usual().count()));
  show(kPathWindow, flow != nullptr ? flow->window() : 0);
  show(kPathRate, flow != nullptr ? flow->rate() : 0);
  show(kPathInFlight, flow != nullptr ? in_flight : 0);
}

}  // namespace verbena::transport
