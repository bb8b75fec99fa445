// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::commands {

// Examines program files as execve(2) and the loader would, without running them.

// The search path that execvp(3) uses when PATH is unset or empty.
inline constexpr std::string_view kDefaultPath = "/bin:/usr/bin";

// Splits a list, such as a search path, at any of `separators`. Keeps empty items: in a search path they mean
// the working directory. An empty list has no items.
std::vector<std::string> split(std::string_view list, const char* separators);

// Returns the file that execvp(3) would run for `name`. Returns `name` as it is, whether or not the file
// exists, if it contains '/'. Returns an empty path if PATH has no such program.
std::filesystem::path find_program(const std::string& name);

// Returns the program that executes a script: "python3" for "#!/usr/bin/env python3". Returns an empty string
// if `file` is no script.
std::string interpreter_of_script(const std::filesystem::path& file);

// Names the privilege that this process would gain by running `file`, such as "set-user-ID"; nullptr if none.
// With a gain of privilege the loader ignores LD_LIBRARY_PATH and LD_PRELOAD (AT_SECURE). There is no gain
// for root from root's set-user-ID programs, on a file system mounted nosuid, or with no_new_privs.
const char* privilege_gained_by(const std::filesystem::path& file);

// Replaces this process with the program `file`, as execvp(3) does: /bin/sh runs a text file without "#!".
// `command` is the argument vector, with the program's own name first. Pass an empty `file` if PATH has no
// such program. Returns only on failure: prints the reason and returns kNotFound or kNotExecutable.
int start_program(const std::filesystem::path& file, const std::vector<std::string>& command);

}  // namespace verbena::commands
