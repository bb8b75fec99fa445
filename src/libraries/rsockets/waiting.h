// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include <sys/types.h>

#include "base/intrusive_list.h"
#include "base/own_fd.h"
#include "base/result.h"
#include "base/spin_lock.h"
#include "base/time.h"

namespace verbena::rsockets {

class Socket;

// A set of conditions, to wait for or to report: the event bits of poll(2), and our own bits above these.
using Interest = uint32_t;
inline constexpr Interest kOpened = 1u << 16;   // the setup of the connection has succeeded or failed
inline constexpr Interest kFlushed = 1u << 17;  // all sent data have arrived, or the connection is down
inline constexpr Interest kControlRoom = 1u
                                         << 18;  // a control message can be sent, or the connection is down

// Wakes one thread that sleeps in poll(2). Any thread may call wake().
class Waker {
 public:
  // Returns the calling thread's waker; null if no descriptor is available for it.
  static Waker* of_this_thread();

  int fd() const { return fd_.get(); }
  void wake();
  void reset();

 private:
  OwnFd fd_;
  pid_t process_ = 0;
};

class WaitList;

// A thread and the conditions that it waits for, in a WaitList for the duration of a scope.
class Waiter {
 public:
  Waiter(WaitList& list, Waker& waker, Interest interest);
  ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

 private:
  friend class WaitList;
  WaitList& list_;
  ListHook hook_;
  Waker* waker_;
  Interest interest_;
};

// The threads that wait for one socket. These threads share the socket's completions and connection events:
// the thread that handles an event wakes the other threads whose conditions hold now. Thread-safe.
class WaitList {
 public:
  // Wakes the threads, except the caller, that wait for a condition in `ready`. REQUIRES: the caller computed
  // `ready` after the change that made the conditions true
  void wake(Interest ready);
  // Whether more than one thread waits. If so, a thread that consumes an event must re-arm the notification.
  bool is_shared();

 private:
  friend class Waiter;
  SpinLock lock_;
  IntrusiveList<Waiter, &Waiter::hook_> waiters_;
  std::atomic<uint32_t> count_{0};
};

// Waits until a condition in `interest`, POLLERR or POLLHUP holds for the socket, and returns the conditions
// that hold. Busy-polls for Configuration::polling_time, then sleeps. Errors: EINTR, ETIMEDOUT at the
// deadline, ENOMEM if the thread has no Waker, those of poll(2).
Result<Interest> wait_for(Socket& socket, Interest interest, TimePoint deadline = kNever);

// Like wait_for(), without a deadline. If `may_block` is false, fails with EAGAIN instead of waiting.
Result<void> await(Socket& socket, Interest interest, bool may_block);

// Waits until a plain descriptor is writable, or Configuration::wake_up_interval has passed. The caller then
// tries to write again. Errors: EINTR, those of poll(2).
Result<void> await_room(int fd);

// Returns the timeout for poll(2): the milliseconds until the deadline, rounded up, at most
// Configuration::wake_up_interval.
int sleep_time(TimePoint deadline);

}  // namespace verbena::rsockets
