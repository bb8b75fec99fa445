// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace verbena::commands {

// Becomes the program `file`, as execvp(3) does: a file without "#!" that is text is read by the shell.
// `command`: the program's name for itself, and its arguments. Returns where it cannot, after a message that
// says why: kNotFound or kNotExecutable. An empty `file`: PATH has no program of that name.
int start_program(const std::filesystem::path& file, const std::vector<std::string>& command);

}  // namespace verbena::commands
