// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

namespace verbena {

// False: the kernel has refused, with errno.
template <class Value>
bool set_option(int socket, int level, int name, const Value& value) {
  return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
}

}  // namespace verbena
