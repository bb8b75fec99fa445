// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

namespace verbena {

// False: the kernel has refused, with errno.
template <class Value>
bool set_option(int socket, int level, int name, const Value& value) {
  return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
}

// Room for what nobody has read, or what is on its way: past the system's limit (net.core.rmem_max, wmem_max)
// where the privilege allows it, else up to there.
inline void set_receive_buffer(int socket, int bytes) {
  if (!set_option(socket, SOL_SOCKET, SO_RCVBUFFORCE, bytes))
    set_option(socket, SOL_SOCKET, SO_RCVBUF, bytes);
}
inline void set_send_buffer(int socket, int bytes) {
  if (!set_option(socket, SOL_SOCKET, SO_SNDBUFFORCE, bytes))
    set_option(socket, SOL_SOCKET, SO_SNDBUF, bytes);
}

}  // namespace verbena
