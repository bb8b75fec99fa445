// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <sys/socket.h>

namespace verbena {

// Returns the cookie of the network namespace in which a socket was made. Unlike the namespace's inode
// number, a cookie is never reused for another namespace. For a socket from accept(2), returns the cookie of
// the connecting process's namespace. So a server learns the network namespace of a client. Returns 0 if the
// kernel cannot tell (before Linux 5.14).
inline uint64_t network_namespace_of(int socket) {
  constexpr int kNetnsCookie = 71;  // SO_NETNS_COOKIE, which older headers lack
  uint64_t cookie = 0;
  socklen_t bytes = sizeof cookie;
  if (::getsockopt(socket, SOL_SOCKET, kNetnsCookie, &cookie, &bytes) != 0) return 0;
  return cookie;
}

}  // namespace verbena
