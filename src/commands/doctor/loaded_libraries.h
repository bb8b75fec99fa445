// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace verbena::commands::doctor {

// The shared libraries that a file would load, directly and through other libraries.
struct LoadedLibraries {
  struct Library {
    std::string name;
    std::string path;  // empty: not found
  };
  std::vector<Library> libraries;
  // A symbol version that a library lacks: "IBVERBS_9.9 of libibverbs.so.1, for /usr/bin/program".
  std::string missing_version;
};

// Finds libraries in the order of glibc's loader: RPATH, `library_path` (LD_LIBRARY_PATH), RUNPATH, the
// loader's cache, the system's folders. It only reads files. The loader would run code of a hostile file even
// to list its libraries, as DT_AUDIT names a library that it calls.
//
// Ignores sub-folders for newer processors (glibc-hwcaps), and does not replace $LIB and $PLATFORM.
LoadedLibraries find_loaded_libraries(const std::filesystem::path& file, const std::string& library_path);

}  // namespace verbena::commands::doctor
