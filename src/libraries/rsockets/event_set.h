// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <vector>

#include <poll.h>
#include <sys/epoll.h>

#include "libraries/rsockets/socket.h"

namespace verbena::rsockets {

// Polls rsockets and plain descriptors together, for one call of rpoll() or a similar function. For one
// thread.
class PollSet {
 public:
  explicit PollSet(std::span<pollfd> wanted);

  // Waits until a descriptor is ready or the deadline passes. Sets `revents` of all descriptors, and returns
  // the number of ready ones; 0 at the deadline. Busy-polls for Configuration::polling_time, then sleeps.
  // Errors: those of poll(2), such as EINTR; ENOMEM if the thread has no Waker.
  Result<int> wait(TimePoint deadline);

 private:
  int check();
  Result<int> sleep(TimePoint deadline);
  bool arm(int waker);

  std::span<pollfd> wanted_;
  std::vector<std::shared_ptr<Socket>> sockets_;  // null for plain descriptors
  std::vector<pollfd> plain_;                     // the plain descriptors of `wanted_`, in order
  std::vector<pollfd> asleep_;  // polled by sleep(): the waker, then one entry for each of `wanted_`
};

// An epoll(7) set for rsockets and plain descriptors mixed: stores the watched events of each descriptor.
// Level-triggered; supports EPOLLONESHOT but not EPOLLET. Thread-safe. A wait() that is already running does
// not watch descriptors or events that are added meanwhile.
class EventSet {
 public:
  static Result<std::shared_ptr<EventSet>> create();
  // Returns the set with this descriptor number; null if there is no such set.
  static std::shared_ptr<EventSet> find(int number);
  // Removes the set. Returns false if there is no such set.
  static bool close(int number);

  int number() const { return number_.get(); }
  // Changes the set as epoll_ctl(2) does. Errors: EEXIST, ENOENT, EINVAL, EBADF, EFAULT; EOPNOTSUPP for
  // EPOLLET.
  Result<void> control(int operation, int fd, const epoll_event* event);
  // Waits as epoll_wait(2) does, and returns the number of events; 0 at the deadline. Errors: EINVAL if
  // `events` is empty; those of PollSet::wait().
  Result<int> wait(std::span<epoll_event> events, TimePoint deadline);

 private:
  EventSet() = default;

  OwnFd number_;
  std::mutex mutex_;
  std::map<int, epoll_event> interests_;
};

}  // namespace verbena::rsockets
