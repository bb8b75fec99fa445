// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "base/time.h"
#include "commands/verbena/top_table.h"
#include "control/model/admin_error.h"
#include "control/model/agent_status.h"

namespace verbena::commands {

// The agent as it is now. An error: there is none, or it does not answer; its text is shown.
using Look = std::function<control::AdminResult<control::AgentStatus>()>;

// Shows the agent on the terminal until the user has enough. REQUIRES: standard input and output are one
void show_top(const Look& look, TopSettings settings, Duration interval);

}  // namespace verbena::commands
