// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

#include "base/format.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// The same file for reading only: a status page is written by its owner alone. Empty when the kernel does not
// open it; then errno says why.
inline UniqueFd reopen_read_only(int fd) {
  return UniqueFd(::open(verbena::format("/proc/self/fd/{}", fd).c_str(), O_RDONLY | O_CLOEXEC));
}

}  // namespace verbena::agent
