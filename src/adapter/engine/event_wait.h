// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>

#include "adapter/engine/shard.h"
#include "adapter/queues/event_channel.h"
#include "base/result.h"

namespace verbena::engine {

// A thread that takes an event of a channel, whose completion queues one shard fills, and sleeps for it at
// the shard's bell if need be: what rings wakes the thread itself, not the engine thread to wake it. Before
// it sleeps it asks on for a moment (HaltPolling). It drives the shard for what has come by memory; for all
// else (ports, news) there is the engine thread as ever. For that thread alone, which makes it and ends it;
// it may be cancelled when it comes and while it sleeps, and then only.
class EventWait {
 public:
  // `bell`: the shard's. Goes there.
  EventWait(Shard& shard, queues::EventChannel& channel, const Bell& bell);
  // Leaves it for good if it has no event.
  ~EventWait();
  EventWait(const EventWait&) = delete;
  EventWait& operator=(const EventWait&) = delete;

  // False: an event is there already, or another thread is at the bell, or waits for the channel's next event
  // at one. The channel's descriptor tells, then.
  bool is_there() const { return at_bell_ != Shard::AtBell::kNot; }

  // As EventChannel::take(), but blocks however the descriptor is set. EBADF when the channel goes away.
  // REQUIRES: is_there()
  template <class Visit>
  Result<void> take(Visit visit) {
    Result<void> slept;
    while (slept && at_bell_ == Shard::AtBell::kSleeps) slept = sleep();
    if (waiter_.take(visit)) return {};
    return slept ? fail(EBADF) : slept;
  }

 private:
  // Before it sleeps: what comes at once need not wake it.
  void ask_on();
  Result<void> sleep();

  Shard& shard_;
  const Bell& bell_;
  queues::EventChannel::Waiter waiter_;
  Shard::AtBell at_bell_ = Shard::AtBell::kNot;
};

}  // namespace verbena::engine
