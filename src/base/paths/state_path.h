// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <sys/types.h>

#include "base/paths/path_text.h"

namespace verbena::paths {

// The lookups of base/paths/state_directory.h, without allocation and without the C++ library: for the
// preload library, which is loaded into every program. Async-signal-safe.

// An `owner` is a user ID as base/paths/users.h defines it: 0, or own_user().

// The directory that holds the state directories of `owner`'s agents, one for each network namespace.
PathText state_home_for(uid_t owner);

// The state directory itself. Invalid if the network namespace is unknown (no /proc).
PathText state_path_for(uid_t owner);

// The directory of this user's mirror (state_directory.h).
PathText mirror_path_for(uid_t owner);

// The socket file of `owner`'s agent in the network namespace of the calling thread, which may differ from
// its process's. Invalid if no such directory exists that only `owner` can write to.
PathText agent_socket_path(uid_t owner);

// Whether `path` is a directory of `owner` in which nobody else can create files. A symbolic link is no
// directory here.
bool is_private_directory(const char* path, uid_t owner);

// Whether nobody but root and this user can have created files in the directory.
bool is_trusted_directory(const char* path);

// The suffix of a mirror's directory name.
inline constexpr std::string_view kMirrorSuffix = "-mirror";

// The file that an agent or mirror keeps locked in its directory while it lives; anybody can query the lock.
inline constexpr const char* kInUse = "/in_use";

// Selects the state directory. Order: root's agent, which serves everyone; our own agent; a mirror, root's
// first; a stale directory of an agent. Invalid if there is none. `chosen`: the value of VERBENA_SYS_DIR, or
// nullptr if it is not set.
PathText find_state_path(const char* chosen);

// The process that maintains the directory of find_state_path(nullptr). kNobody: there is no directory, or it
// is stale.
enum class ShownBy { kNobody, kAgent, kMirror };
ShownBy state_is_shown_by();

}  // namespace verbena::paths
