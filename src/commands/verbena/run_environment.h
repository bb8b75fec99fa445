// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "commands/verbena/installation.h"

namespace verbena::commands {

// LD_LIBRARY_PATH for a program under `verbena run`: our libraries first, then what was there. Ours are named
// only once, however often `verbena run` is nested.
std::string library_path_with(const std::filesystem::path& libraries, std::string_view current);

// PATH, with the folder of our commands first. An empty item means the current folder, and stays.
std::string path_with(const std::filesystem::path& commands, std::string_view current);

// PATH, with the folder of our own programs behind all else, so that the system's of the same name are found
// first.
std::string path_with_last(const std::filesystem::path& programs, std::string_view current);

// LD_PRELOAD, with ours first; only the runtime of a sanitizer (sanitizers.h) stays before it. The others
// keep their order. The loader splits the list at spaces and colons and knows no quoting, so a preload whose
// path has one is given by its file name alone, and the loader finds it through the library path.
std::string preload_with(const std::filesystem::path& preload, std::string_view current);

// Whether LD_PRELOAD names nothing but `preload` and runtimes of sanitizers.
bool preloads_only(const std::filesystem::path& preload, std::string_view current);

}  // namespace verbena::commands
