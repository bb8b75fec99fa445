// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::paths {

// The state directory: there an agent publishes its devices for programs that look for them in the file
// system. It mirrors the places where they look:
//
//   <directory>/sys/class/infiniband/<device>/...
//   <directory>/dev/infiniband/<device>
//
// The preload library redirects file accesses to it; ibv_get_sysfs_path() returns it.
//
//   /run/verbena/<netns>             a root agent's
//   /run/user/<uid>/verbena/<netns>  another user's, where the login manager made /run/user/<uid>
//   /tmp/verbena-<uid>/<netns>       another user's otherwise
//
// <netns> is the inode number of the process's network namespace (/proc/self/ns/net).
//
// In a container that does not see its agent's directory, a *mirror* publishes the same devices in a
// directory of its own, <netns>-mirror (commands/agent/device_mirror.h).

// The state directory of an agent of this user; empty if the network namespace is unknown.
std::string state_directory_for(uid_t owner);

// The state directory that this process may trust: VERBENA_SYS_DIR if set (nothing if that is empty or no
// directory), else root's, else this user's. This user's counts only if no other user can have written to it.
// May be nothing.
std::optional<std::string> find_state_directory();

// For the agent: creates the state directory of its user if it is missing. Only the user can write to it;
// everyone can read root's. Errors: EPERM: another user owns a directory of that name; those of mkdir(2).
Result<std::string> make_state_directory();

// Creates the directory of a mirror, likewise.
Result<std::string> make_mirror_directory();

// Creates the locked file kInUse in the directory. The agent keeps the descriptor while it lives, which tells
// others that the directory is not stale. REQUIRES: the directory is our own
Result<UniqueFd> mark_in_use(const std::string& directory);

}  // namespace verbena::paths
