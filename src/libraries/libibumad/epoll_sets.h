// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <sys/epoll.h>

namespace verbena::umad {

// The epoll sets of this process that watch a descriptor. A set knows a file and not its number, so it
// forgets a descriptor behind which another file is put: unless it is told, and in the same words. What it is
// told in, the kernel says in /proc/self/fdinfo; where that cannot be read nothing is found.
class EpollSets {
 public:
  // Takes the descriptor, a socket, out of all sets.
  explicit EpollSets(int socket);
  // Puts it back, with the file that it is by then.
  ~EpollSets();
  EpollSets(const EpollSets&) = delete;
  EpollSets& operator=(const EpollSets&) = delete;

 private:
  struct Watch {
    int set;
    epoll_event event;
  };
  const int socket_;
  std::vector<Watch> watches_;
};

}  // namespace verbena::umad
