// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

namespace verbena {

// The socket option SO_PEERPIDFD (Linux 6.5), which the C library's headers may lack. getsockopt() returns a
// pidfd of the process that listens or connected at the other end of a Unix socket.
#ifdef SO_PEERPIDFD
inline constexpr int kPeerPidfd = SO_PEERPIDFD;
#else
inline constexpr int kPeerPidfd = 77;  // asm-generic/socket.h
#endif

}  // namespace verbena
