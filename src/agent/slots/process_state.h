// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace verbena::agent {

// Returns whether a process is stopped by a signal or a debugger, or frozen with its control group, as in a
// paused container. Reads /proc and /sys/fs/cgroup. Returns false if these cannot be read, and for pid 0.
bool is_stopped(pid_t pid);

}  // namespace verbena::agent
