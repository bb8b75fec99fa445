// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <sys/resource.h>

namespace verbena::agent {

// How many descriptors the agent may have open, and its clients as many under way (RLIMIT_NOFILE).
inline size_t descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace verbena::agent
