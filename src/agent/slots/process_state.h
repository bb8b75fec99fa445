// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace verbena::agent {

// Whether a process cannot run until another process continues it. It is stopped by a signal or a debugger,
// or frozen with its control group, as in a paused container. Reads /proc and /sys/fs/cgroup. False if these
// do not tell, and for pid 0.
bool is_stopped(pid_t pid);

}  // namespace verbena::agent
