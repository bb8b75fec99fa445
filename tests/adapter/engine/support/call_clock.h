// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "adapter/shm/call_costs.h"

namespace verbena::engine {

// A clock by which each call on a socket takes the time that the test sets.
class FakeCallClock final : public CallClock {
 public:
  TimePoint now() const override { return time_ += each; }
  TimePoint processor_time() const override { return now(); }
  std::optional<Duration> wait_for_processor() const override { return Duration::zero(); }
  void pass(Duration time) { time_ += time; }

  Duration each{};

 private:
  mutable TimePoint time_{std::chrono::hours(1)};
};

}  // namespace verbena::engine
