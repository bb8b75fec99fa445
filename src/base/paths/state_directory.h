// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::paths {

// An agent publishes its devices in its state directory, for programs that look for devices in the file
// system. The directory mirrors the places where programs look:
//
//   <directory>/sys/class/infiniband/<device>/...
//   <directory>/dev/infiniband/<device>
//
// The preload library redirects file accesses to the state directory; ibv_get_sysfs_path() returns it.
//
//   /run/verbena/<netns>             a root agent's
//   /run/user/<uid>/verbena/<netns>  another user's, where the login manager made /run/user/<uid>
//   /tmp/verbena-<uid>/<netns>       another user's otherwise
//   /tmp/verbena-<uid>-<drawn digits>/<netns>  if yet another user has created that (state_home_for())
//
// <netns> is the inode number of the process's network namespace (/proc/self/ns/net).
//
// In a container that does not see its agent's directory, a *mirror* publishes the same devices in a
// directory of its own, <netns>-mirror (commands/agent/device_mirror.h).

// Returns the path of the state directory of `owner`'s agent in this network namespace, whether or not it
// exists. Empty if the network namespace is unknown.
std::string state_directory_for(uid_t owner);

// Finds the state directory that this process may trust: VERBENA_SYS_DIR if set, else in the order of
// find_state_path(): directories of living agents, of mirrors, of agents that have ended. Directories to
// which users other than root and this user can write do not count. Returns nullopt if there is none, or if
// VERBENA_SYS_DIR is not the absolute path of a directory.
std::optional<std::string> find_state_directory();

// For the agent: creates the state directory of its user if it is missing. Only the user can write to it;
// everyone can read root's. Errors: EPERM if another file has that name, or a directory that others can write
// to; ENOENT if the network namespace is unknown; those of mkdir(2) and chmod(2).
Result<std::string> make_state_directory();

// Creates the directory of this user's mirror, as make_state_directory() does for an agent.
Result<std::string> make_mirror_directory();

// Creates the file kInUse (state_path.h) in the directory and locks it. An agent or mirror keeps the
// descriptor while it lives; the lock tells others that the directory is not stale. REQUIRES: the directory
// is our own
Result<UniqueFd> mark_in_use(const std::string& directory);

// Returns an error text if /proc is not mounted or /dev/null cannot be opened, as in a bare chroot. The text
// names the file, its use and the command that fixes the problem. Returns nullptr if both are there.
const char* missing_system_file();

}  // namespace verbena::paths
