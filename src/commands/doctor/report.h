// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "commands/doctor/finding.h"

namespace verbena::commands::doctor {

// For people: a line for each finding, and below it what to do.
std::string as_text(const Findings& findings);

// For programs: {"version", "result", "findings": [{"subject", "level", "what", "to_do"}]}.
std::string as_json(const Findings& findings);

// What `verbena doctor` exits with: 0 fine, 1 something is amiss. (2: it could not look at what it was
// asked.)
int exit_status(const Findings& findings);

}  // namespace verbena::commands::doctor
