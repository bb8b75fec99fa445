// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/event_wait.h"

#include <pthread.h>

#include "base/cancellation_off.h"

namespace verbena::engine {

EventWait::EventWait(Shard& shard, queues::EventChannel& channel, const Bell& bell)
    : shard_(shard), bell_(bell), waiter_(channel, bell) {
  {
    // As read(2) is, whether it waits or not: a thread that never sleeps, as its events come soon enough, can
    // be cancelled here alone.
    const CancellationAllowed here;
    ::pthread_testcancel();
  }
  const CancellationOff whole;
  if (waiter_.has_the_place()) at_bell_ = shard_.goes_to_bell(waiter_);
  ask_on();
}

EventWait::~EventWait() {
  const CancellationOff whole;
  if (at_bell_ == Shard::AtBell::kSleeps) shard_.gives_bell_up();
}

void EventWait::ask_on() {
  while (at_bell_ == Shard::AtBell::kAsks) {
    const Demand demand = shard_.pauses_at_bell();
    at_bell_ = shard_.looks_at_bell(waiter_, demand);
  }
}

Result<void> EventWait::sleep() {
  {
    const CancellationAllowed asleep;
    if (auto rung = bell_.await(); !rung) return rung;
  }
  const CancellationOff whole;
  at_bell_ = shard_.looks_at_bell(waiter_);
  // Rings for what it has found without being woken would wake it one by one, for nothing.
  if (at_bell_ == Shard::AtBell::kSleeps && bell_.hear()) at_bell_ = shard_.looks_at_bell(waiter_);
  ask_on();
  return {};
}

}  // namespace verbena::engine
