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
  // "IBVERBS_9.9 of libibverbs.so.1, for /usr/bin/program": a version of symbols that a library lacks.
  std::string missing_version;
};

// Looks for libraries as glibc's loader does: by RPATH, `library_path` (LD_LIBRARY_PATH), RUNPATH, the
// loader's cache, and the system's folders. It only reads files. The loader itself would run code of a
// hostile file even when it only lists libraries: DT_AUDIT names a library for it to call.
//
// It does not look into the sub-folders for newer processors (glibc-hwcaps), nor replace $LIB and $PLATFORM.
LoadedLibraries find_loaded_libraries(const std::filesystem::path& file, const std::string& library_path);

}  // namespace verbena::commands::doctor
