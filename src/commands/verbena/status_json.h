// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "control/client/admin.h"

namespace verbena::commands {

// `verbena status --json`: one JSON object; docs/using.md describes its members. Members are added over time,
// never taken away. Without an agent "agent" is null and the lists are empty. Always valid UTF-8.
std::string status_as_json(const std::optional<control::AgentStatus>& status);

// `verbena link show --json`: an array of links, each with the members that it has in the status.
std::string links_as_json(const control::AgentStatus& status);

}  // namespace verbena::commands
