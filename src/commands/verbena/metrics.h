// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/unique_fd.h"

namespace verbena::commands {

// Serves the agent's metrics over HTTP at this listening socket. Never starts an agent.
[[noreturn]] void serve_metrics(UniqueFd listener);

}  // namespace verbena::commands
