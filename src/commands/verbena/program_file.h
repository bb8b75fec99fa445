// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace verbena::commands {

// Programs as execve(2) and the loader see them, without running them.

// Where execvp(3) looks when PATH is not set or empty.
inline constexpr std::string_view kDefaultPath = "/bin:/usr/bin";

// The file that execvp(3) would run for `name`; empty where PATH has none.
std::filesystem::path find_program(const std::string& name);

// "#!/usr/bin/env python3": the program that reads a script, here python3; empty where the file is no script.
std::string interpreter_of_script(const std::filesystem::path& file);

// Names the privilege that this process would gain by running `file`, such as "set-user-ID"; nullptr: none.
// Where privilege is gained the loader ignores LD_LIBRARY_PATH and LD_PRELOAD (AT_SECURE). Root gains none of
// root's programs, and nobody gains any on a file system that is mounted nosuid, or with no_new_privs.
const char* privilege_gained_by(const std::filesystem::path& file);

}  // namespace verbena::commands
