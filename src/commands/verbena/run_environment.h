// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "commands/verbena/installation.h"

namespace verbena::commands {

// Returns the value of an environment variable, or an empty string if the variable is not set.
std::string environment_variable(const char* name);

// Returns a value for LD_LIBRARY_PATH: the folder `libraries`, then the other folders of its value `current`.
// Drops empty items. The folder occurs only once, also in nested calls of `verbena run`.
std::string library_path_with(const std::filesystem::path& libraries, std::string_view current);

// Returns a value for PATH: the folder of our commands, then `current`. Keeps empty items, which mean the
// working directory. Uses kDefaultPath if `current` is empty.
std::string path_with(const std::filesystem::path& commands, std::string_view current);

// Returns a value for PATH: `current`, then the folder of our programs. The system's own programs win.
std::string path_with_last(const std::filesystem::path& programs, std::string_view current);

// Returns a value for LD_PRELOAD: sanitizer runtimes (sanitizers.h) in `current`, then `preload`, then the
// other items of `current`. Items keep their order otherwise. The loader splits the list at spaces and colons
// and has no quoting. So a path that contains a space or a colon is reduced to its file name, which the
// loader finds through LD_LIBRARY_PATH.
std::string preload_with(const std::filesystem::path& preload, std::string_view current);

// Whether the value `current` of LD_PRELOAD names at most `preload` and sanitizer runtimes.
bool preloads_only(const std::filesystem::path& preload, std::string_view current);

}  // namespace verbena::commands
