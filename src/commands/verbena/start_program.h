// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace verbena::commands {

// Replaces this process with the program `file`, as execvp(3) does: /bin/sh runs a text file without "#!".
// `command` is the argument vector, with the program's own name first. Pass an empty `file` if PATH has no
// such program. Returns only on failure: prints the reason and returns kNotFound or kNotExecutable.
int start_program(const std::filesystem::path& file, const std::vector<std::string>& command);

}  // namespace verbena::commands
