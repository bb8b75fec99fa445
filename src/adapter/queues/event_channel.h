// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
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

// A source of events on a channel: a completion queue, or one asynchronous event.
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
// set at any time. A thread may wait for a wake-up instead, which other sources send, too (Waiter).
// Thread-safe. Allocates nothing per event.
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

  // Takes the oldest event and calls visit(source); withdraw() cannot happen meanwhile. Blocks unless the
  // descriptor is O_NONBLOCK. Errors: EAGAIN and EINTR, as read(2); after the last event, EIO if the channel
  // has ended, and EBADF if the application has closed the descriptor.
  template <class Visit>
  Result<void> take(Visit visit) {
    for (;;) {
      if (auto waited = wait(); !waited) return waited;
      std::lock_guard guard(lock_);
      // The descriptor was readable, but the event has been withdrawn. Waits for the next.
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

  // Whether take() would find an event, as far as can be seen now.
  bool has_some();
  // Whether the descriptor is O_NONBLOCK now.
  bool is_nonblocking() const;

  // The channel is going away: makes the thread that is a Waiter leave, if there is one. False: it has not
  // left within `patience`.
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
  bool given_ = false;  // the first event is the waiter's: the descriptor does not count it
  bool dismissed_ = false;
};

// A thread that waits for a wake-up and not for the descriptor. The next event goes directly to it, not
// through the descriptor, which would cost two system calls. If the thread leaves without taking it, the
// descriptor gets it.
//
// One at a time per channel. For the thread that waits: it creates and destroys it.
class EventChannel::Waiter {
 public:
  // `bell` outlives it. A thread that posts an event sends this wake-up, unless it is the waiting thread.
  Waiter(EventChannel& channel, const Bell& bell);
  ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // False: another thread is the waiter, the descriptor has events already, or the channel ends. Nothing else
  // may be called then.
  bool has_the_place() const { return has_the_place_; }

  // Whether waiting is over: an event was given, or none will come.
  bool is_served() const;

  // Takes the event that was given, like EventChannel::take(). False: there is none.
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
