// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

#include "base/format.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Opens the file of `fd` again, read-only: only its owner writes to a status page. Empty on failure, with
// errno set.
inline UniqueFd reopen_read_only(int fd) {
  return UniqueFd(::open(verbena::format("/proc/self/fd/{}", fd).c_str(), O_RDONLY | O_CLOEXEC));
}

}  // namespace verbena::agent
