// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <sys/resource.h>

namespace verbena::agent {

// Returns the maximum number of descriptors that the agent may have open (soft RLIMIT_NOFILE). The maximum
// numbers of sessions, event channels, clients' files and XRC domains follow from it.
inline size_t descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace verbena::agent
