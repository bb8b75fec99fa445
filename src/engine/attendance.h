// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"
#include "engine/driving.h"

namespace verbena::engine {

// Whether the application attends to its shard: calls verbs without ever staying away for long. One that
// waits on its memory for what a peer will write stays away, however often it has polled before. With the
// shard's lock held.
class Attendance {
 public:
  // The application is in a verb.
  void enters(TimePoint now) {
    if (now > expected_by_) since_ = now;
  }
  // It leaves it, having received so many packets, which keep it busy; with `yields` it lets others have its
  // processor first, who take their time.
  void leaves(TimePoint now, uint32_t received, bool yields) {
    expected_by_ = now + (yields ? kLongestYield : kLongestAbsence) + received * kWorkPerPacket;
  }
  // So many were received for it by somebody else.
  void is_given(TimePoint now, uint32_t received) {
    if (!is_over(now)) expected_by_ += received * kWorkPerPacket;
  }
  // It waits for somebody else to let go of the shard: however long that takes, it is no absence.
  void waits(TimePoint now) {
    if (expected_by_ == kNotAtAll) since_ = now;
    expected_by_ = std::max(expected_by_, now + kLongestAbsence);
  }
  // It is about to sleep.
  void ends() { expected_by_ = kNotAtAll; }

  bool is_over(TimePoint now) const { return now > expected_by_; }
  // REQUIRES: the application is in a verb
  Duration lasts(TimePoint now) const { return now - since_; }

 private:
  static constexpr TimePoint kNotAtAll = TimePoint::min();

  TimePoint since_{};
  TimePoint expected_by_ = kNotAtAll;
};

}  // namespace verbena::engine
