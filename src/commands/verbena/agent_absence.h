// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "control/model/admin_error.h"

namespace verbena::commands {

// Whether an error of Admin::connect() means that no agent runs (ECONNREFUSED or ENOENT).
bool is_absence(const control::AdminError& error);

// Returns the text that commands print if no agent runs. It is "No agent is running: nothing uses Verbena.",
// or names up to 5 programs in this network namespace that still use Verbena. Finds them in /proc, as far as
// this user may read there. These programs keep running without an agent.
std::string describe_absence();

}  // namespace verbena::commands
