// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "base/time.h"
#include "commands/verbena/top_table.h"
#include "control/model/admin_error.h"
#include "control/model/agent_status.h"

namespace verbena::commands {

// Returns the agent's status. An error means that no agent runs or that it does not answer; its text is
// shown.
using Look = std::function<control::AdminResult<control::AgentStatus>()>;

// Shows the agent's status on the terminal until the user quits. Updates it every `interval`, until the user
// chooses another interval. REQUIRES: standard input and output are a terminal
void show_top(const Look& look, TopSettings settings, Duration interval);

}  // namespace verbena::commands
