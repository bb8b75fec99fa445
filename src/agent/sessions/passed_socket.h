// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/unique_fd.h"

namespace verbena::agent {

// Returns the socket on which a service manager listens for the agent (sd_listen_fds(3)), so that clients can
// connect before the agent starts. Returns an empty descriptor if there is none, or if it does not listen at
// this user's agent name. Clears the environment variables, so that no child process uses them. Call before
// other threads are started.
UniqueFd take_passed_socket();

}  // namespace verbena::agent
