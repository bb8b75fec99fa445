// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "control/client/admin.h"

namespace verbena::commands {

// Formats the output of `verbena status --json`: one JSON object, whose members docs/using.md describes.
// Later versions add members and remove none. Without an agent, "agent" is null and the lists are empty.
// Always valid UTF-8.
std::string status_as_json(const std::optional<control::AgentStatus>& status);

// Formats the output of `verbena link show --json`: an array of links, each with the same members as in the
// status.
std::string links_as_json(const control::AgentStatus& status);

}  // namespace verbena::commands
