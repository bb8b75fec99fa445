// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "control/model/admin_error.h"

namespace verbena::commands {

// Whether the error of Admin::connect() says that no agent runs.
bool is_absence(const control::AdminError& error);

// The answer where no agent runs: "No agent is running: nothing uses Verbena.", or which programs of this
// network namespace use Verbena all the same, as far as /proc shows them. They go on by themselves; those
// that need an agent start the next one.
std::string describe_absence();

}  // namespace verbena::commands
