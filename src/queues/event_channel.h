// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "base/intrusive_list.h"
#include "base/result.h"
#include "base/spin_lock.h"
#include "base/unique_fd.h"

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
// served. It polls, can be dup'ed and honours O_NONBLOCK, which the application may set at any time.
// Thread-safe. Allocates nothing per event.
class EventChannel {
 public:
  static Result<std::unique_ptr<EventChannel>> create();
  ~EventChannel() = default;
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  int fd() const { return fd_.get(); }

  // Adds an event of `source`; wakes a waiter.
  void post(EventSource& source);

  // Takes the oldest event and calls visit(source) while withdraw() cannot happen. Blocks unless the
  // descriptor is O_NONBLOCK. Errors: EAGAIN, EINTR, as read(2); EIO after the last, when it has ended.
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

 private:
  Result<void> wait();

  explicit EventChannel(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;  // an eventfd that counts as a semaphore
  SpinLock lock_;
  bool ended_ = false;
  IntrusiveList<EventSource, &EventSource::hook_> sources_;
};

}  // namespace verbena::queues
