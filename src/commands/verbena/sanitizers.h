// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands/doctor/elf_file.h"

namespace verbena::commands {

// The sanitizers of programs and of libraries in LD_PRELOAD.
//
// AddressSanitizer's runtime ends a program in which another library precedes it, as our preloads do. Its
// option verify_asan_link_order=0 disables this check. That works: the runtime replaces functions of the C
// library as any preload does, and calls the next definition. The runtime itself cannot go into LD_PRELOAD,
// since children inherit it. Children built without it would report leaks (python, perl), or end
// (ThreadSanitizer).
enum class Sanitizer { kAddress, kHardwareAddress, kThread, kLeak, kUndefined };

// "AddressSanitizer", ...
std::string_view name_of(Sanitizer sanitizer);

// Returns the sanitizer whose shared runtime `library` is, judged by its file name: GCC's libasan.so.8,
// Clang's libclang_rt.asan-x86_64.so, with or without a folder. By default, Clang links programs statically
// with the runtime.
std::optional<Sanitizer> sanitizer_of(std::string_view library);

// Returns the sanitizer that a program is built with; if there are several, preferably one with its own
// malloc(). The runtime may be a shared library or linked into the program.
std::optional<Sanitizer> sanitizer_of(const doctor::ElfFile& program);

// Whether the sanitizer's runtime has its own malloc(), which conflicts with that of another library.
bool replaces_malloc(Sanitizer sanitizer);

// Returns ASAN_OPTIONS with verify_asan_link_order=0 added, unless the user has set that option.
std::string asan_options_with_preloads(std::string_view current);

// Whether ASAN_OPTIONS makes AddressSanitizer refuse preloads.
bool refuses_preloads(std::string_view asan_options);

}  // namespace verbena::commands
