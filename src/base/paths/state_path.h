// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <sys/types.h>

#include "base/paths/path_text.h"

namespace verbena::paths {

// What base/paths/state_directory.h offers, for code that may neither allocate nor need the C++ library: the
// preload, which is loaded into every program. Async-signal-safe.

// Owners are users as base/paths/users.h numbers them: 0, or own_user().

// Where the agents of `owner` keep their directories, one for each network namespace.
PathText state_home_for(uid_t owner);

// Invalid when the network namespace cannot be told (no /proc).
PathText state_path_for(uid_t owner);

// Where a mirror of this user's is (state_directory.h).
PathText mirror_path_for(uid_t owner);

// The socket file of an agent of `owner` in the network namespace that the calling thread is in (which may be
// another than its process's). Invalid where there is no directory that nobody but `owner` can write to.
PathText agent_socket_path(uid_t owner);

// A directory of the owner's in which nobody else can put anything. A symbolic link is not a directory here.
bool is_private_directory(const char* path, uid_t owner);

// Nobody but root and ourselves can have put anything there.
bool is_trusted_directory(const char* path);

// The last part of a mirror's path.
inline constexpr std::string_view kMirrorSuffix = "-mirror";

// What an agent has locked in its directory for as long as it lives, for everybody to see.
inline constexpr const char* kInUse = "/in_use";

// Root's, whose agent serves everyone, before our own; a mirror where neither agent shows itself here; what
// an agent has left behind where there is nothing else. Invalid when there is none. `chosen`: what
// VERBENA_SYS_DIR says, or nullptr when it is not set.
PathText find_state_path(const char* chosen);

// The process that keeps current the directory of find_state_path(nullptr). Nobody does where there is none,
// or an agent has left it behind.
enum class ShownBy { kNobody, kAgent, kMirror };
ShownBy state_is_shown_by();

}  // namespace verbena::paths
