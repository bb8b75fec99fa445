// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/unique_fd.h"

namespace verbena::agent {

// The socket by which a service manager has begun to listen for us (sd_listen_fds(3)): the first client was
// there before the agent. Nothing if there is none, or if it is not one that listens for this user's agent.
// Of the main thread, before there are others: the environment is read and cleared, so that nobody whom we
// start takes it for his.
UniqueFd take_passed_socket();

}  // namespace verbena::agent
