// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <sys/socket.h>

namespace verbena {

// The cookie of the network namespace in which a socket was made. Unlike the namespace's inode number, no
// other namespace ever has the same. For a socket from accept(2) it is the namespace of the connecting
// process: so a server learns the network of a client of its socket file. 0 if the kernel does not tell
// (before 5.14).
inline uint64_t network_namespace_of(int socket) {
  constexpr int kNetnsCookie = 71;  // SO_NETNS_COOKIE, which older headers lack
  uint64_t cookie = 0;
  socklen_t bytes = sizeof cookie;
  if (::getsockopt(socket, SOL_SOCKET, kNetnsCookie, &cookie, &bytes) != 0) return 0;
  return cookie;
}

}  // namespace verbena
