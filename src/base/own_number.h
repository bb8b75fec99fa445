// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>

#include <fcntl.h>
#include <sys/resource.h>

#include "base/unique_fd.h"

namespace verbena {

// Moves a descriptor up, above the numbers that nearly all programs use, if there is room: to a number of at
// least half of RLIMIT_NOFILE or 1024, whichever is lower. A higher limit would waste memory, because the
// kernel's descriptor table grows to the highest number in use. REQUIRES: close() of a copy does not block
inline UniqueFd with_own_number(UniqueFd fd) {
  constexpr rlim_t kHighest = 1024;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return fd;
  const int lowest = static_cast<int>(std::min(limit.rlim_cur / 2, kHighest));
  if (fd.get() >= lowest) return fd;
  UniqueFd higher(::fcntl(fd.get(), F_DUPFD_CLOEXEC, lowest));
  return higher ? std::move(higher) : std::move(fd);
}

}  // namespace verbena
