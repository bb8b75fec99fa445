// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "control/client/command_client.h"

namespace verbena::commands {

// Format the output of `verbena link show`, `verbena status` and `verbena status -v`, in this order. The text
// is for people and may change between versions; programs use the JSON form (status_as_json()).
std::string links_as_text(const control::AgentStatus& status);
std::string summary_as_text(const control::AgentStatus& status);
std::string status_as_text(const control::AgentStatus& status);

// Formats the output of `verbena status --json`: one JSON object. docs/using.md describes its members; later
// versions add members and remove none. Without a `status` (no agent runs), "agent" is null and the lists are
// empty. The text is always valid UTF-8.
std::string status_as_json(const std::optional<control::AgentStatus>& status);

// Formats the output of `verbena link show --json`: an array of links, with members as in status_as_json().
std::string links_as_json(const control::AgentStatus& status);

}  // namespace verbena::commands
