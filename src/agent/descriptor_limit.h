// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <sys/resource.h>

namespace verbena::agent {

// Maximum number of descriptors that the agent may have open (RLIMIT_NOFILE). Its clients may have as many in
// flight.
inline size_t descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace verbena::agent
