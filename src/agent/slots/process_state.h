// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace verbena::agent {

// Whether a process executes nothing until somebody continues it: stopped by a signal or a debugger, or
// frozen with its control group, as a paused container is. Reads /proc and /sys/fs/cgroup; false where these
// do not say, and for pid 0.
bool is_stopped(pid_t pid);

}  // namespace verbena::agent
