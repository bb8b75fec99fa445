// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "commands/doctor/finding.h"

namespace verbena::commands::doctor {

// Formats findings for people: one line for each, followed by its remedy, and a conclusion at the end.
std::string as_text(const Findings& findings);

// Formats findings as JSON: {"version", "result", "findings": [{"subject", "level", "what", "to_do"}]}.
std::string as_json(const Findings& findings);

// Returns the exit status of `verbena doctor`: 1 if there is a finding of level kCost or kFault, else 0. The
// caller exits with 2 if the check was not possible.
int exit_status(const Findings& findings);

}  // namespace verbena::commands::doctor
