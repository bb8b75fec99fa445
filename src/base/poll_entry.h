// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include "base/plain_poll.h"

namespace verbena {

// Membership of a descriptor in an epoll set; the destructor removes it by EPOLL_CTL_DEL. Closing the
// descriptor is not enough: while another process has an inherited copy, as a child between fork() and exec()
// has, the set would go on to report events of it.
//
// Declare it after the descriptor, so that it is destroyed first.
class PollEntry {
 public:
  PollEntry() = default;
  ~PollEntry() {
    if (set_ >= 0) plain_epoll_ctl(set_, EPOLL_CTL_DEL, fd_, nullptr);
  }
  PollEntry(const PollEntry&) = delete;
  PollEntry& operator=(const PollEntry&) = delete;

  // Adds `fd` to the set for EPOLLIN, with `data`. False on error. REQUIRES: the set outlives this object, or
  // forget() is called
  bool join(int set, int fd, void* data) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = data;
    if (plain_epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0) return false;
    set_ = set;
    fd_ = fd;
    return true;
  }
  // For a child after fork(), where the set is the parent's: leaves the set as it is.
  void forget() { set_ = -1; }

 private:
  int set_ = -1;
  int fd_ = -1;
};

}  // namespace verbena
