// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include "base/plain_calls.h"

namespace verbena {

// Keeps a descriptor in an epoll set; the destructor removes the descriptor by EPOLL_CTL_DEL. Closing the
// descriptor is not enough. While another process has an inherited copy, as a child between fork() and exec()
// has, the set would go on to report the file's events.
//
// Declare the PollEntry after the descriptor, so that the PollEntry is destroyed first.
class PollEntry {
 public:
  PollEntry() = default;
  ~PollEntry() {
    if (set_ >= 0) plain_epoll_ctl(set_, EPOLL_CTL_DEL, fd_, nullptr);
  }
  PollEntry(const PollEntry&) = delete;
  PollEntry& operator=(const PollEntry&) = delete;

  // Adds `fd` to the set for EPOLLIN, with `data`. Returns false on error, with errno. REQUIRES: the set
  // outlives this object, or forget() is called
  bool join(int set, int fd, void* data) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = data;
    if (plain_epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0) return false;
    set_ = set;
    fd_ = fd;
    return true;
  }
  // For a child after fork(), where the set is shared with the parent: makes the destructor leave the set as
  // it is.
  void forget() { set_ = -1; }

 private:
  int set_ = -1;
  int fd_ = -1;
};

}  // namespace verbena
