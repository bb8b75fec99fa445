// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <sys/types.h>

namespace verbena::agent {

// Counts the programs that were refused because of their protocol version, and describes the last one.
struct RefusedPrograms {
  uint32_t count = 0;
  pid_t last_pid = 0;
  uint16_t last_version = 0;
};

}  // namespace verbena::agent
