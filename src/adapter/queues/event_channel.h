// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include <pthread.h>

#include "base/bell.h"
#include "base/intrusive_list.h"
#include "base/own_fd.h"
#include "base/result.h"
#include "base/spin_lock.h"
#include "base/time.h"

namespace verbena::queues {

class EventChannel;

// A source of events on a channel: a completion queue, or one kind of asynchronous event of an object.
class EventSource {
 public:
  EventSource() = default;
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;

 private:
  friend class EventChannel;
  ListHook hook_;
  uint32_t pending_ = 0;  // events posted and not yet taken
};

// An event channel: a descriptor that becomes readable with each event, and the events behind it, first come,
// first served. The descriptor can be polled and dup'ed, and honours O_NONBLOCK, which the application may
// set at any time. Instead of the descriptor, a thread may wait for a wake-up that it also gets for other
// reasons (Waiter). Thread-safe. Allocates nothing per event.
class EventChannel {
 public:
  class Waiter;

  static Result<std::unique_ptr<EventChannel>> create();
  ~EventChannel() = default;
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  int fd() const { return fd_.get(); }

  // Adds an event of `source`, and wakes a thread that waits.
  void post(EventSource& source);

  // Takes the oldest event and calls visit(source) with the channel's lock held. So withdraw() waits until
  // visit() has returned. Blocks unless the descriptor is O_NONBLOCK. Errors: EAGAIN and EINTR, as read(2);
  // after the last event, EIO if the channel has ended, and EBADF if the application has closed the
  // descriptor.
  template <class Visit>
  Result<void> take(Visit visit) {
    for (;;) {
      if (auto waited = wait(); !waited) return waited;
      std::lock_guard guard(lock_);
      // The descriptor was readable, but the event has been withdrawn. Waits for the next event.
      if (sources_.empty()) {
        if (ended_) return fail(EIO);
        continue;
      }
      EventSource& source = sources_.pop_front();
      if (--source.pending_ > 0) sources_.push_back(source);
      visit(source);
      return {};
    }
  }

  // Ends the channel: no more events come. After the last one, the descriptor stays readable and take()
  // fails.
  void end();

  // Drops the pending events of `source`, which is going away.
  void withdraw(EventSource& source);

  // Returns whether an event is pending, or the channel has ended. Then take() usually returns at once.
  bool has_some() {
    std::lock_guard guard(lock_);
    return ended_ || !sources_.empty();
  }
  // Returns whether the descriptor is O_NONBLOCK now.
  bool is_nonblocking() const;

  // Makes the waiting thread leave, if the channel has a Waiter, and admits no other Waiter. Returns false if
  // the thread has not left within `patience`. Call before the channel is destroyed.
  bool dismiss_waiter(Duration patience);

 private:
  Result<void> wait();

  explicit EventChannel(UniqueFd fd) : fd_(OwnFd::with_known_number(std::move(fd))) {}

  OwnFd fd_;  // an eventfd in semaphore mode
  SpinLock lock_;
  bool ended_ = false;
  IntrusiveList<EventSource, &EventSource::hook_> sources_;

  // The Waiter's wake-up and thread; null: there is none.
  const Bell* bell_ = nullptr;
  pthread_t waiter_{};
  bool given_ = false;  // the first event goes to the waiter: the descriptor does not count it
  bool dismissed_ = false;
};

// Represents a thread that waits for an event by a wake-up (Bell) and not by the channel's descriptor. The
// channel gives the next event to this thread directly: the descriptor would cost two system calls. If the
// thread leaves without taking the event, the descriptor gets the event.
//
// There is one Waiter at a time per channel. The thread that waits creates, uses and destroys it.
class EventChannel::Waiter {
 public:
  // `bell` is the wake-up of the waiting thread: a thread that posts an event rings it, unless it is the
  // waiting thread itself. REQUIRES: `bell` outlives the Waiter
  Waiter(EventChannel& channel, const Bell& bell);
  ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Returns whether this thread has become the channel's waiter. Returns false if another thread is the
  // waiter, if the descriptor has events already, or if the channel has ended or is being destroyed. After
  // false, no other function of this Waiter may be called.
  bool has_the_place() const { return has_the_place_; }

  // Returns whether waiting is over: an event was given, or none will come.
  bool is_served() const;

  // Takes the event that was given to this thread and calls visit(source), like EventChannel::take(). Returns
  // false at once if no event was given.
  template <class Visit>
  bool take(Visit visit) {
    std::lock_guard guard(channel_.lock_);
    if (!std::exchange(channel_.given_, false)) return false;
    EventSource& source = channel_.sources_.pop_front();
    if (--source.pending_ > 0) channel_.sources_.push_back(source);
    visit(source);
    return true;
  }

 private:
  EventChannel& channel_;
  bool has_the_place_;
};

}  // namespace verbena::queues
