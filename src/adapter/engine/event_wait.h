// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>

#include "adapter/engine/shard.h"
#include "adapter/queues/event_channel.h"
#include "base/result.h"

namespace verbena::engine {

// Takes one event of a completion event channel for a thread that waits. All CQs of the channel belong to one
// shard. If there is no event, the thread sleeps at the shard's bell (Input::bell()). Thus a ring wakes this
// thread directly, and not first the engine thread. Before the thread sleeps it busy-polls for a moment
// (HaltPolling). It receives only what comes by shared memory; the engine thread does all else (ports,
// messages of the agent).
//
// Only one thread uses an object, from constructor to destructor. It may be cancelled only in the constructor
// and while it sleeps.
class EventWait {
 public:
  // Goes to the bell. `bell` is the shard's.
  EventWait(Shard& shard, queues::EventChannel& channel, const Bell& bell);
  // Leaves the bell for good if the thread has no event yet.
  ~EventWait();
  EventWait(const EventWait&) = delete;
  EventWait& operator=(const EventWait&) = delete;

  // Returns whether the thread waits at the bell, or has got its event there. Returns false if an event was
  // available already, if another thread is at the bell, or if another thread waits for the channel's next
  // event. Then the caller uses the channel's descriptor.
  bool is_there() const { return at_bell_ != Shard::AtBell::kNot; }

  // Waits for the event, and calls visit(source) with the channel's lock held, like EventChannel::take().
  // Blocks even if the descriptor is non-blocking. Errors: EBADF if the channel is destroyed; those of
  // Bell::await(). REQUIRES: is_there()
  template <class Visit>
  Result<void> take(Visit visit) {
    Result<void> slept;
    while (slept && at_bell_ == Shard::AtBell::kSleeps) slept = sleep();
    if (waiter_.take(visit)) return {};
    return slept ? fail(EBADF) : slept;
  }

 private:
  // Busy-polls before the thread sleeps, so that an event that comes at once need not wake it.
  void ask_on();
  Result<void> sleep();

  Shard& shard_;
  const Bell& bell_;
  queues::EventChannel::Waiter waiter_;
  Shard::AtBell at_bell_ = Shard::AtBell::kNot;
};

}  // namespace verbena::engine
