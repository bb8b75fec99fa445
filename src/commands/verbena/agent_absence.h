// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "control/model/admin_error.h"

namespace verbena::commands {

// Whether an error of Admin::connect() means that no agent runs (ECONNREFUSED or ENOENT).
bool is_absence(const control::AdminError& error);

// Returns the text for a host without an agent: "No agent is running: nothing uses Verbena.", or the names of
// programs in this network namespace that still use Verbena. It finds them in /proc, as far as this user may
// read there. These programs keep running without an agent; a program that needs one starts it.
std::string describe_absence();

}  // namespace verbena::commands
