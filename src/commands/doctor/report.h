// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "commands/doctor/finding.h"

namespace verbena::commands::doctor {

// Formats findings for people: one line for each, followed by its remedy.
std::string as_text(const Findings& findings);

// Formats findings as JSON: {"version", "result", "findings": [{"subject", "level", "what", "to_do"}]}.
std::string as_json(const Findings& findings);

// The exit status of `verbena doctor`: 0 if all is well, 1 if there is a cost or a fault. The caller uses 2
// if the check was not possible.
int exit_status(const Findings& findings);

}  // namespace verbena::commands::doctor
