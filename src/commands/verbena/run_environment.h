// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands/doctor/elf_file.h"
#include "commands/verbena/installation.h"

namespace verbena::commands {

// Returns the value of an environment variable, or an empty string if the variable is not set.
std::string environment_variable(const char* name);

// The sanitizer that a program is built with. Some sanitizers conflict with the preloads of `verbena run`.
//
// AddressSanitizer's runtime ends a program if another library is loaded before it, as our preloads are. Its
// option verify_asan_link_order=0 disables this check. The program then works: like any preload, the runtime
// replaces functions of the C library and calls the next definition of each. `verbena run` cannot instead put
// the runtime first in LD_PRELOAD, since child processes inherit the variable. Children built without the
// sanitizer would report leaks (python, perl), or end (ThreadSanitizer).
enum class Sanitizer { kAddress, kHardwareAddress, kThread, kLeak, kUndefined };

// Returns the sanitizer's name, such as "AddressSanitizer".
std::string_view name_of(Sanitizer sanitizer);

// Returns the sanitizer that `library` is the shared runtime of, judged by its file name: GCC's libasan.so.8,
// or Clang's libclang_rt.asan-x86_64.so, with or without a folder. Returns nullopt for other libraries. By
// default, Clang links the runtime into programs statically.
std::optional<Sanitizer> sanitizer_of(std::string_view library);

// Returns the sanitizer that a program is built with, or nullopt. If there are several, prefers one with its
// own malloc(). The runtime may be a shared library, or linked into the program by Clang. A runtime that
// GCC has linked statically (-static-libasan) is not found: the program exports no name of it.
std::optional<Sanitizer> sanitizer_of(const doctor::ElfFile& program);

// Whether the sanitizer's runtime has its own malloc(), which conflicts with that of libverbena-memory.so.
bool replaces_malloc(Sanitizer sanitizer);

// Returns a value for ASAN_OPTIONS: `current`, with verify_asan_link_order=0 added if the option is not set.
std::string asan_options_with_preloads(std::string_view current);

// Whether the user's ASAN_OPTIONS enables verify_asan_link_order, so that AddressSanitizer refuses our
// preloads. Returns false if the option is not set, since `verbena run` then disables it.
bool refuses_preloads(std::string_view asan_options);

// An environment variable that does not work as intended, because its value or its name is wrong.
struct WrongSetting {
  std::string name;
  // True if Verbena ignores the value. False for a mistyped name, or a bad path in VERBENA_AGENT.
  bool is_ours;
  std::string what;  // the problem: "VERBENA_SHARDS=99 has no effect: it has to be a number from 1 to 8"
};

// Returns the wrong settings in the environment, except VERBENA_LOG, which the logger reports (base/log.h).
std::vector<WrongSetting> wrong_settings();

// Returns a value for LD_LIBRARY_PATH: the folder `libraries`, then the other folders of its value `current`.
// Drops empty items. The folder occurs only once, also in nested calls of `verbena run`.
std::string library_path_with(const std::filesystem::path& libraries, std::string_view current);

// Returns a value for PATH: the folder of our commands, then `current`. Keeps empty items, which mean the
// working directory. Uses kDefaultPath if `current` is empty.
std::string path_with(const std::filesystem::path& commands, std::string_view current);

// Returns a value for PATH: `current`, then the folder of our programs. The system's own programs win.
std::string path_with_last(const std::filesystem::path& programs, std::string_view current);

// Returns a value for LD_PRELOAD: sanitizer runtimes in `current`, then `preload`, then the
// other items of `current`. Items keep their order otherwise. The loader splits the list at spaces and colons
// and has no quoting. So a path that contains a space or a colon is reduced to its file name, which the
// loader finds through LD_LIBRARY_PATH.
std::string preload_with(const std::filesystem::path& preload, std::string_view current);

// Whether the value `current` of LD_PRELOAD names at most `preload` and sanitizer runtimes.
bool preloads_only(const std::filesystem::path& preload, std::string_view current);

}  // namespace verbena::commands
