// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include "base/plain_poll.h"

namespace verbena {

// A descriptor's place in an epoll set. It is taken out by name when this ends, as to close the descriptor is
// not enough: a process that has inherited it, as a child that has just been forked has until it calls
// exec(), keeps it in the set, which would go on to tell of what is gone.
//
// Declared behind the descriptor, so that it ends before that.
class PollEntry {
 public:
  PollEntry() = default;
  ~PollEntry() {
    if (set_ >= 0) plain_epoll_ctl(set_, EPOLL_CTL_DEL, fd_, nullptr);
  }
  PollEntry(const PollEntry&) = delete;
  PollEntry& operator=(const PollEntry&) = delete;

  // From now on the set tells when there is something to read, and gives `data`. The set outlives this, or is
  // forgotten. False: that cannot be.
  bool join(int set, int fd, void* data) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = data;
    if (plain_epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0) return false;
    set_ = set;
    fd_ = fd;
    return true;
  }
  // In a child after fork(): the set is the parent's.
  void forget() { set_ = -1; }

 private:
  int set_ = -1;
  int fd_ = -1;
};

}  // namespace verbena
