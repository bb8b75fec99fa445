// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <sys/types.h>

#include "base/paths/path_text.h"

namespace verbena::paths {

// Finds the directories of base/paths/state_directory.h without allocation and without the C++ library: for
// the preload library, which is loaded into every program. Async-signal-safe.

// `owner` is always a user ID as base/paths/users.h defines it: 0, or own_user().

// Returns the directory that holds the state directories of `owner`'s agents, one for each network namespace:
// /run/verbena for root.
PathText state_home_for(uid_t owner);

// Returns the state directory of `owner`'s agent in this network namespace. Invalid if the network namespace
// is unknown (no /proc).
PathText state_path_for(uid_t owner);

// Returns the directory in which `owner`'s mirror shows the devices of this network namespace
// (state_directory.h). Invalid if the network namespace is unknown.
PathText mirror_path_for(uid_t owner);

// Returns the socket file of `owner`'s agent in the network namespace of the calling thread, which may differ
// from the process's. Invalid if the state directory does not exist, or others than `owner` can write to it.
PathText agent_socket_path(uid_t owner);

// Whether `path` is a directory of `owner` in which nobody else can create files. A symbolic link is no
// directory here.
bool is_private_directory(const char* path, uid_t owner);

// Whether `path` is a directory in which only its owner can create files, and the owner is root or this user.
bool is_trusted_directory(const char* path);

// The suffix of a mirror's directory name.
inline constexpr std::string_view kMirrorSuffix = "-mirror";

// The file that an agent or mirror keeps locked in its directory while it lives; anybody can query the lock.
inline constexpr const char* kInUse = "/in_use";

// Selects the state directory. Order: root's living agent, which serves everyone; our own living agent;
// root's living mirror; our own; a stale directory of an agent. Invalid if there is none. `chosen`: the value
// of VERBENA_SYS_DIR, or nullptr if it is not set. A set value is returned if it is the absolute path of a
// directory; otherwise the result is invalid.
PathText find_state_path(const char* chosen);

// The kind of process that maintains the directory of find_state_path(nullptr). kNobody if there is no
// directory, or it is stale.
enum class ShownBy { kNobody, kAgent, kMirror };
ShownBy state_is_shown_by();

}  // namespace verbena::paths
