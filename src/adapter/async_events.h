// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include <infiniband/verbs.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::adapter {

// The asynchronous events of a context behind a real descriptor. Thread-safe.
class AsyncEvents {
 public:
  static Result<std::unique_ptr<AsyncEvents>> create();

  int fd() const { return fd_.get(); }

  void post(const ibv_async_event& event);

  // Takes the oldest event and calls taken(event) while forget() cannot happen. Blocks unless the descriptor
  // is O_NONBLOCK.
  template <class Taken>
  Result<void> take(ibv_async_event* out, Taken taken) {
    for (;;) {
      if (auto waited = wait(); !waited) return waited;
      const std::lock_guard guard(mutex_);
      if (events_.empty()) continue;  // what we were woken for has been forgotten
      *out = events_.front();
      events_.pop_front();
      taken(*out);
      return {};
    }
  }

  // Drops the events of an object (a QP, a CQ) that is being destroyed.
  void forget(const void* object);

 private:
  explicit AsyncEvents(UniqueFd fd) : fd_(std::move(fd)) {}
  Result<void> wait();

  UniqueFd fd_;  // an eventfd that counts as a semaphore
  std::mutex mutex_;
  std::deque<ibv_async_event> events_;
};

// The object that an event is about; nullptr for events of the port or device.
const void* object_of(const ibv_async_event& event);

}  // namespace verbena::adapter
