// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "commands/verbena/installation.h"

namespace verbena::commands {

// Returns LD_LIBRARY_PATH with our folder first and the current folders after it. Our folder occurs only
// once, also in nested calls of `verbena run`.
std::string library_path_with(const std::filesystem::path& libraries, std::string_view current);

// Returns PATH with the folder of our commands first. Keeps empty items, which mean the current folder.
std::string path_with(const std::filesystem::path& commands, std::string_view current);

// Returns PATH with the folder of our programs last, so that system programs of the same names take
// precedence.
std::string path_with_last(const std::filesystem::path& programs, std::string_view current);

// Returns LD_PRELOAD with `preload` first; only sanitizer runtimes (sanitizers.h) stay before it. The other
// items keep their order. The loader splits the list at spaces and colons and has no quoting. So a path with
// one of these is reduced to its file name, which the loader finds through LD_LIBRARY_PATH.
std::string preload_with(const std::filesystem::path& preload, std::string_view current);

// Whether LD_PRELOAD names nothing but `preload` and sanitizer runtimes.
bool preloads_only(const std::filesystem::path& preload, std::string_view current);

}  // namespace verbena::commands
