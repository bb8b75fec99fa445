// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

namespace verbena {

// Like socket(2), but bypasses preloaded libraries by a bare system call. librspreload turns every internet
// socket into an rsocket, and an rsocket itself needs real sockets. (Do not use it for the process's first
// socket, the one to the agent: librspreload initializes itself in socket(2), and its other calls rely on
// that.)
inline int plain_socket(int domain, int type, int protocol) {
  return static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
}

}  // namespace verbena
