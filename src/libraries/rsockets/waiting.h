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

// What someone waits for, or what is there: events as poll(2) has them, and some of our own above.
using Interest = uint32_t;
inline constexpr Interest kOpened = 1u << 16;       // a connection is no longer being opened
inline constexpr Interest kFlushed = 1u << 17;      // all that was sent has arrived, or never will
inline constexpr Interest kControlRoom = 1u << 18;  // a control message can be sent, or never can

// Wakes one thread out of poll(2). Any thread may wake.
class Waker {
 public:
  // The calling thread's own; null where no descriptor is left for it.
  static Waker* of_this_thread();

  int fd() const { return fd_.get(); }
  void wake();
  void reset();

 private:
  OwnFd fd_;
  pid_t process_ = 0;
};

// A thread's place among those that wait for a socket.
class Waiter {
 public:
  Waiter(Waker& waker, Interest interest) : waker_(&waker), interest_(interest) {}

 private:
  friend class WaitList;
  ListHook hook_;
  Waker* waker_;
  Interest interest_;
};

// Those that wait for one socket. Completions and connection events are shared by all threads that use a
// socket: the one that handles them wakes the others that they concern. Thread-safe.
class WaitList {
 public:
  void add(Waiter& waiter);
  void remove(Waiter& waiter);
  // All but the calling thread, which looks for itself. REQUIRES: `ready` was computed after what made it so
  void wake(Interest ready);
  // More than one: then nobody may take an event of the descriptor away without making sure of the next.
  bool is_shared();

 private:
  SpinLock lock_;
  IntrusiveList<Waiter, &Waiter::hook_> waiters_;
  std::atomic<uint32_t> count_{0};
};

// Stands among those who wait for a socket, as long as it is there.
class Standing {
 public:
  Standing(WaitList& list, Waker& waker, Interest interest) : list_(list), waiter_(waker, interest) {
    list_.add(waiter_);
  }
  ~Standing() { list_.remove(waiter_); }
  Standing(const Standing&) = delete;
  Standing& operator=(const Standing&) = delete;

 private:
  WaitList& list_;
  Waiter waiter_;
};

// Waits until the socket is ready for one of `interest`; looks for a while before it sleeps. Errors: EINTR,
// ETIMEDOUT at the deadline, those of poll(2).
Result<Interest> wait_for(Socket& socket, Interest interest, TimePoint deadline = kNever);

// The same for a call that may have been told not to block (EAGAIN), and has no deadline.
Result<void> await(Socket& socket, Interest interest, bool may_block);

// Until a plain descriptor may be written to, or it is time to look whether that is still wanted. Errors:
// EINTR, those of poll(2).
Result<void> await_room(int fd);

// As poll(2) wants it: milliseconds, rounded up, -1 for never; at most the configured wake-up interval.
int sleep_time(TimePoint deadline);

}  // namespace verbena::rsockets
