// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <sys/epoll.h>

namespace verbena::umad {

// Keeps a descriptor in this process's epoll sets while another file replaces the file behind the descriptor.
// An epoll set watches files and not numbers, so the set would lose the descriptor. The constructor finds the
// watches in /proc/self/fdinfo; if that folder is not readable, the sets lose the descriptor.
class EpollSets {
 public:
  // Removes the descriptor, a socket, from all sets.
  explicit EpollSets(int socket);
  // Adds the descriptor again to the same sets, with the file that is behind the descriptor now.
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
