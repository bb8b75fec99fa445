// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "commands/doctor/checks.h"
#include "commands/verbena/installation.h"

namespace verbena::commands::doctor {

// Verbena's libraries that replace those of rdma-core.
inline constexpr std::array<std::string_view, 5> kVerbenaLibraries = {
    "libibverbs.so.1", "librdmacm.so.1", "libibumad.so.3", "libmlx5.so.1", "libefa.so.1"};

// Checks whether a program would run on Verbena, and with which libraries, without running any of its code.
// `name` may also be a shared library. Searches for `name` in PATH if it has no '/', then in the current
// folder. Fails with ENOENT if there is no such file, and with ENOEXEC if it is neither an ELF file nor a
// script. Fails with ELOOP after 4 levels of scripts.
Result<void> look_at_program(const std::string& name, const Installation& installation, Findings& findings);

// Whether look_at_program() would find a file for `name`.
bool is_program(const std::string& name);

// Whether `file` is in the folder of Verbena's libraries.
bool is_ours(const std::filesystem::path& file, const Installation& installation);

// The shared libraries, without the loader, that a file would load, directly and through other libraries.
struct LoadedLibraries {
  struct Library {
    std::string name;
    std::string path;  // empty if the library is not found
  };
  std::vector<Library> libraries;
  // The first symbol version that a library lacks, such as "IBVERBS_9.9 of /usr/lib/libibverbs.so.1, for
  // /usr/bin/program". Empty if none is missing.
  std::string missing_version;
};

// Finds the libraries of `file` in the order of glibc's loader: RPATH, `library_path` (LD_LIBRARY_PATH),
// RUNPATH, the loader's cache, the system's folders. RPATH applies only if the file that needs the library
// has no RUNPATH. In that case the RPATHs of the files through which that file was loaded apply as well, up
// to the program. A file that has a RUNPATH contributes no RPATH.
//
// Runs `ldconfig -p` to list the loader's cache, for at most 10 seconds, and otherwise only reads files. Does
// not run the loader on `file`: a hostile file can name a library in DT_AUDIT, and the loader would run that
// library's code.
//
// Ignores sub-folders for newer processors (glibc-hwcaps), and folders that contain $LIB or $PLATFORM.
LoadedLibraries find_loaded_libraries(const std::filesystem::path& file, const std::string& library_path);

}  // namespace verbena::commands::doctor
