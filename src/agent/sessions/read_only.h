// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

#include "base/format.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Returns a new, read-only descriptor of the file that `fd` refers to, for clients that must not write to it,
// for example to another process's status page. Returns an empty descriptor and sets errno on failure.
inline UniqueFd reopen_read_only(int fd) {
  return UniqueFd(::open(verbena::format("/proc/self/fd/{}", fd).c_str(), O_RDONLY | O_CLOEXEC));
}

}  // namespace verbena::agent
