// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "base/paths/root_only.h"
#include "commands/verbena/installation.h"

namespace verbena::commands {

// Looks for a file of Verbena's that others than root can change, among all that programs load or run while
// `verbena system` is on: all files in the folder of the libraries and below it, since the loader's cache
// takes whatever is there, the agent that these libraries start, preloads and commands. Follows links to
// folders.
std::optional<paths::Changeable> find_changeable_file(const Installation& installation);

}  // namespace verbena::commands
