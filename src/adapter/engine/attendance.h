// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "adapter/engine/driving.h"
#include "base/time.h"

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
    left_at_ = now;
    expected_by_ = now + (yields ? kLongestYield : kLongestAbsence) + received * kWorkPerPacket;
  }
  // So many were received for it by somebody else.
  void is_given(TimePoint now, uint32_t received) {
    if (!is_over(now)) expected_by_ += received * kWorkPerPacket;
  }
  // It waits for somebody else to let go of the shard: however long that takes, it is no absence.
  void waits(TimePoint now) {
    if (expected_by_ == kNotAtAll) since_ = now;
    left_at_ = now;
    expected_by_ = std::max(expected_by_, now + kLongestAbsence);
  }
  // It is about to sleep.
  void ends() { left_at_ = expected_by_ = kNotAtAll; }

  // It was in a verb just before: its next one, most likely a reply to what has come, is worth waiting for,
  // until then. No longer after a yield either, from which it may be long in coming.
  TimePoint near_until() const { return left_at_ == kNotAtAll ? kNotAtAll : left_at_ + kLongestAbsence; }

  bool is_over(TimePoint now) const { return now > expected_by_; }
  // REQUIRES: the application is in a verb
  Duration lasts(TimePoint now) const { return now - since_; }

 private:
  static constexpr TimePoint kNotAtAll = TimePoint::min();

  TimePoint since_{};
  TimePoint expected_by_ = kNotAtAll;
  TimePoint left_at_ = kNotAtAll;
};

}  // namespace verbena::engine
