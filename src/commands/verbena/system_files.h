// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "base/paths/root_only.h"
#include "commands/verbena/installation.h"

namespace verbena::commands {

// Finds a file of Verbena that users other than root can change; nullopt if there is none. `verbena system
// on` calls it, since root's programs then load these files. Checks the agent, preloads, commands, and
// everything below the libraries' folder, since the loader's cache lists all files there. Follows links.
std::optional<paths::Changeable> find_changeable_file(const Installation& installation);

}  // namespace verbena::commands
