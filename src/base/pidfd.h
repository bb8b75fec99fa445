// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <sys/types.h>

namespace verbena {

// Both functions read /proc/self/fdinfo. Unlike a read of /proc/PID, that takes no reference to the process's
// memory, which the reader would have to free if the process ended meanwhile.

// Returns the value of a field: "4711" of the line "Pid:\t4711" for the name "Pid". Empty if there is no such
// field, or no memory. Reads the whole file, because the kernel writes the file locks of this open file
// before the fields. It also walks over those that other users have set by other pidfds of the process.
std::string pidfd_field(int pidfd, std::string_view name);

// Returns the process's pid in the reader's pid namespace, or 0 if the process has ended or is not visible
// there.
pid_t pid_of(int pidfd);

}  // namespace verbena
