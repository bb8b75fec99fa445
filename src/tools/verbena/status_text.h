// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "agent_client/admin.h"

namespace verbena::tools {

// What `verbena link show`, `verbena status` and `verbena status -v` print. The text is for people and may
// change; programs read the JSON.
std::string links_as_text(const agent_client::AgentStatus& status);
std::string summary_as_text(const agent_client::AgentStatus& status);
std::string status_as_text(const agent_client::AgentStatus& status);

}  // namespace verbena::tools
