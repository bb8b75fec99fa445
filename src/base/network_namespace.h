// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <sys/socket.h>

namespace verbena {

// The network namespace that a socket was made in, as a number that no other namespace ever has, unlike its
// inode. For a socket that accept(2) returned it is the namespace of the process that connected: so a server
// learns which network a client of its socket file is in. 0: the kernel does not say (before 5.14).
inline uint64_t network_namespace_of(int socket) {
  constexpr int kNetnsCookie = 71;  // SO_NETNS_COOKIE, which older headers lack
  uint64_t cookie = 0;
  socklen_t bytes = sizeof cookie;
  if (::getsockopt(socket, SOL_SOCKET, kNetnsCookie, &cookie, &bytes) != 0) return 0;
  return cookie;
}

}  // namespace verbena
