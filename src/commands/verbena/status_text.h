// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "control/client/admin.h"

namespace verbena::commands {

// Format the output of `verbena link show`, `verbena status` and `verbena status -v`, in this order. The text
// is for people and may change between versions; programs use the JSON form (status_json.h).
std::string links_as_text(const control::AgentStatus& status);
std::string summary_as_text(const control::AgentStatus& status);
std::string status_as_text(const control::AgentStatus& status);

}  // namespace verbena::commands
