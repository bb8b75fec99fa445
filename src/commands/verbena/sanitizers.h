// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands/doctor/elf_file.h"

namespace verbena::commands {

// Programs that are built with a sanitizer, and libraries in LD_PRELOAD.
//
// The runtime of AddressSanitizer ends a program in which another library comes before it, as every preload
// does that is not the runtime. Its option verify_asan_link_order=0 turns that off, and it works: it replaces
// functions of the C library as any preload does, and calls the next definition. The runtime cannot be put
// into LD_PRELOAD instead: children inherit it, and those that are not built with it then report leaks
// (python, perl), or end (ThreadSanitizer).
enum class Sanitizer { kAddress, kHardwareAddress, kThread, kLeak, kUndefined };

// "AddressSanitizer", ...
std::string_view name_of(Sanitizer sanitizer);

// The sanitizer whose shared runtime a library is, by its file name: GCC's libasan.so.8, Clang's
// libclang_rt.asan-x86_64.so, with or without a folder. Clang links programs statically with it by default.
std::optional<Sanitizer> sanitizer_of(std::string_view library);

// The sanitizer that a program is built with and that has a malloc() of its own, or else another one of its
// sanitizers. Its runtime may be a shared library or be linked into the program.
std::optional<Sanitizer> sanitizer_of(const doctor::ElfFile& program);

// Its runtime has a malloc() of its own, which must not meet another library's.
bool replaces_malloc(Sanitizer sanitizer);

// ASAN_OPTIONS with verify_asan_link_order=0, unless the user has set that option.
std::string asan_options_with_preloads(std::string_view current);

// Whether ASAN_OPTIONS has AddressSanitizer refuse preloads.
bool refuses_preloads(std::string_view asan_options);

}  // namespace verbena::commands
