// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/unique_fd.h"

namespace verbena::commands {

// Serves the agent's metrics over HTTP at this listening socket, until the process ends. Never starts an
// agent; without one, the metric verbena_agent_up is 0.
[[noreturn]] void serve_metrics(UniqueFd listener);

}  // namespace verbena::commands
