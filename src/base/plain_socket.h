// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

namespace verbena {

// socket(2), past whatever a preloaded library has put in its place: librspreload makes an rsocket of every
// internet socket, and an rsocket is made of what asks for one here. (Not for the first socket of all, which
// is the one to the agent: librspreload makes itself ready in socket(2), and the other calls count on that.)
inline int plain_socket(int domain, int type, int protocol) {
  return static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
}

}  // namespace verbena
