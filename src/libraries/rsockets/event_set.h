// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>

#include <sys/epoll.h>

#include "base/own_fd.h"
#include "base/result.h"
#include "base/time.h"

namespace verbena::rsockets {

// What epoll(7) is for descriptors, for rsockets and descriptors mixed: what each is watched for stays
// here between the calls that wait. Level-triggered, with EPOLLONESHOT. Thread-safe. A call that waits
// already does not see a change.
class EventSet {
 public:
  static Result<std::shared_ptr<EventSet>> create();
  // Null if there is none.
  static std::shared_ptr<EventSet> find(int number);
  // Forgets it; false if there is none.
  static bool close(int number);

  int number() const { return number_.get(); }
  // As epoll_ctl(2). Errors: EEXIST, ENOENT, EINVAL, EBADF, EFAULT; EOPNOTSUPP for EPOLLET.
  Result<void> control(int operation, int fd, const epoll_event* event);
  // As epoll_wait(2).
  Result<int> wait(std::span<epoll_event> events, TimePoint deadline);

 private:
  EventSet() = default;

  OwnFd number_;
  std::mutex mutex_;
  std::map<int, epoll_event> interests_;
};

}  // namespace verbena::rsockets
