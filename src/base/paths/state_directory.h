// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::paths {

// The directory in which an agent shows its devices to programs that look for them in the file system. It
// mirrors the places where they look:
//
//   <directory>/sys/class/infiniband/<device>/...
//   <directory>/dev/infiniband/<device>
//
// The preload shows it there; ibv_get_sysfs_path() names it.
//
//   /run/verbena/<netns>             a root agent's
//   /run/user/<uid>/verbena/<netns>  another user's, where the login manager made /run/user/<uid>
//   /tmp/verbena-<uid>/<netns>       anyone else's
//
// <netns> is the inode number of the network namespace that the process is in (/proc/self/ns/net).
//
// In a container that does not see its agent's directory a *mirror* shows the same in a directory of its own,
// <netns>-mirror (commands/agent/device_mirror.h).

// Where an agent of this user keeps it; empty when the network namespace cannot be told.
std::string state_directory_for(uid_t owner);

// The one that this process may trust: what VERBENA_SYS_DIR names (nothing when that is empty or no
// directory), else root's, else this user's. Of the latter only one that no other user can have written to.
// There may be none.
std::optional<std::string> find_state_directory();

// For the agent: makes sure that the directory of this user is there, writable by nobody else, readable by
// everyone if it is root's.
// Errors: EPERM when another user holds its name; those of mkdir(2).
Result<std::string> make_state_directory();

// The same for a mirror.
Result<std::string> make_mirror_directory();

// An agent has what it answers for as long as it lives: so others know that its directory is not one that was
// left behind. REQUIRES: the directory is our own
Result<UniqueFd> mark_in_use(const std::string& directory);

}  // namespace verbena::paths
