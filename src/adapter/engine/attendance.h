// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "adapter/engine/driving.h"
#include "base/time.h"

namespace verbena::engine {

// Tracks whether the application is active: it calls verbs and is never away for long. An application that
// polls its own memory, which a peer writes, is away, however often it has called verbs before. REQUIRES: the
// shard's lock is held
class Attendance {
 public:
  // The application has entered a verb.
  void enters(TimePoint now) {
    if (now > expected_by_) since_ = now;
  }
  // The application leaves the verb. Processing the `received` packets will keep it busy. `yields`: the
  // thread offers its processor to other threads before it goes on, and they may keep it for long.
  void leaves(TimePoint now, uint32_t received, bool yields) {
    left_at_ = now;
    expected_by_ = now + (yields ? kLongestYield : kLongestAbsence) + received * kWorkPerPacket;
  }
  // The engine thread has received packets for the application, which will be busy with them.
  void is_given(TimePoint now, uint32_t received) {
    if (!is_over(now)) expected_by_ += received * kWorkPerPacket;
  }
  // The application waits until another thread releases the shard's lock. It is not away, however long that
  // takes.
  void waits(TimePoint now) {
    if (expected_by_ == kNotAtAll) since_ = now;
    left_at_ = now;
    expected_by_ = std::max(expected_by_, now + kLongestAbsence);
  }
  // The application is about to sleep.
  void ends() { left_at_ = expected_by_ = kNotAtAll; }

  // Returns the time until which it is worth waiting for the application's next verb, most likely a reply to
  // what it received. TimePoint::min(): no verb is expected soon. That the application yielded its processor
  // does not extend this time.
  TimePoint near_until() const { return left_at_ == kNotAtAll ? kNotAtAll : left_at_ + kLongestAbsence; }

  bool is_over(TimePoint now) const { return now > expected_by_; }
  // Returns for how long the application has been active. REQUIRES: the application is in a verb
  Duration lasts(TimePoint now) const { return now - since_; }

 private:
  static constexpr TimePoint kNotAtAll = TimePoint::min();

  TimePoint since_{};
  TimePoint expected_by_ = kNotAtAll;
  TimePoint left_at_ = kNotAtAll;
};

}  // namespace verbena::engine
