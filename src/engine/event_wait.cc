// SPDX-License-Identifier: Apache-2.0
#include "engine/event_wait.h"

#include "base/cancellation_off.h"

namespace verbena::engine {

EventWait::EventWait(Shard& shard, queues::EventChannel& channel, const Bell& bell)
    : shard_(shard), bell_(bell), waiter_(channel, bell) {
  const CancellationOff whole;
  if (waiter_.has_the_place()) at_bell_ = shard_.goes_to_bell(waiter_);
}

EventWait::~EventWait() {
  const CancellationOff whole;
  if (at_bell_ == Shard::AtBell::kSleeps) shard_.gives_bell_up();
}

Result<void> EventWait::sleep() {
  {
    const CancellationAllowed asleep;
    if (auto rung = bell_.await(); !rung) return rung;
  }
  const CancellationOff whole;
  at_bell_ = shard_.woken_at_bell(waiter_);
  return {};
}

}  // namespace verbena::engine
