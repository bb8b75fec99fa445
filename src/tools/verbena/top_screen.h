// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "agent_client/admin_error.h"
#include "agent_client/agent_status.h"
#include "base/time.h"
#include "tools/verbena/top_table.h"

namespace verbena::tools {

// The agent as it is now. An error: there is none, or it does not answer; its text is shown.
using Look = std::function<agent_client::AdminResult<agent_client::AgentStatus>()>;

// Shows the agent on the terminal until the user has enough. REQUIRES: standard input and output are one
void show_top(const Look& look, TopSettings settings, Duration interval);

}  // namespace verbena::tools
