// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace verbena::commands::doctor {

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
// RUNPATH, the loader's cache, the system's folders. Only reads files. Running the loader to list the
// libraries would be unsafe: a hostile file can name a library in DT_AUDIT whose code the loader runs.
//
// Ignores sub-folders for newer processors (glibc-hwcaps), and folders that contain $LIB or $PLATFORM.
LoadedLibraries find_loaded_libraries(const std::filesystem::path& file, const std::string& library_path);

}  // namespace verbena::commands::doctor
