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

// Something that can have events pending on a channel: a completion queue, or one asynchronous event.
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

// A real descriptor that becomes readable with each event, and the events behind it, first come, first
// served. It polls, can be dup'ed and honours O_NONBLOCK, which the application may set at any time. A thread
// may wait at a bell instead, where it hears of other things too (Waiter).
// Thread-safe. Allocates nothing per event.
class EventChannel {
 public:
  class Waiter;

  static Result<std::unique_ptr<EventChannel>> create();
  ~EventChannel() = default;
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  int fd() const { return fd_.get(); }

  // Adds an event of `source`; wakes a waiter.
  void post(EventSource& source);

  // Takes the oldest event and calls visit(source) while withdraw() cannot happen. Blocks unless the
  // descriptor is O_NONBLOCK. Errors: EAGAIN, EINTR, as read(2); EIO after the last, when it has ended;
  // EBADF, likewise, when the application has closed the descriptor.
  template <class Visit>
  Result<void> take(Visit visit) {
    for (;;) {
      if (auto waited = wait(); !waited) return waited;
      std::lock_guard guard(lock_);
      // Nothing there although the count said so: the event was withdrawn. Wait for the next.
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

  // No more events will come: when the last is taken, the descriptor stays readable and take() says so.
  void end();

  // Forgets what `source` has pending; it is going away.
  void withdraw(EventSource& source);

  // Whether take() would find an event, as far as can be seen now.
  bool has_some();
  // Whether the descriptor is O_NONBLOCK at present.
  bool is_nonblocking() const;

  // The channel is going away: the thread that is a Waiter, if one is, leaves. False: it did not within so
  // long.
  bool dismiss_waiter(Duration patience);

 private:
  Result<void> wait();

  explicit EventChannel(UniqueFd fd) : fd_(OwnFd::with_known_number(std::move(fd))) {}

  OwnFd fd_;  // an eventfd that counts as a semaphore
  SpinLock lock_;
  bool ended_ = false;
  IntrusiveList<EventSource, &EventSource::hook_> sources_;

  // The Waiter: the thread, and where it sleeps; nullptr: there is none.
  const Bell* bell_ = nullptr;
  pthread_t waiter_{};
  bool given_ = false;  // the first of the events is the waiter's: the descriptor does not tell of it
  bool dismissed_ = false;
};

// A thread that waits for an event at a bell. The next event is given to it and not told by the descriptor,
// which costs two system calls; if the thread leaves without it, the descriptor tells of it then.
//
// One thread at a time may be one. For that thread alone; it makes it, and ends it.
class EventChannel::Waiter {
 public:
  // `bell` outlives it. Who has an event for the thread rings it, if it is not the thread itself.
  Waiter(EventChannel& channel, const Bell& bell);
  ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // False: another thread is the channel's waiter. Nothing else is to be called then.
  bool has_the_place() const { return has_the_place_; }

  // Whether an event has been given, or nothing more will come: there is no use in waiting on.
  bool is_served() const;

  // Takes the event that was given, as EventChannel::take() does. False: there is none.
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
