// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace verbena::commands::doctor {

// The parts of an untrusted program or library file that the loader would read. Every offset is checked.
struct ElfFile {
  // A symbol version that the file needs from a library.
  struct NeededVersion {
    std::string library;
    std::string version;
  };
  bool is_64_bit = false;
  uint16_t machine = 0;  // EM_X86_64, ...
  bool dynamic = false;
  bool is_library = false;  // a shared object that is not a program
  std::string interpreter;  // the loader; empty for static programs and most libraries
  std::string soname;       // the name under which others need it; may be empty
  std::vector<std::string> needed;
  std::vector<NeededVersion> needed_versions;  // without weak references
  std::vector<std::string> defined_versions;
  std::string rpath;    // searched before LD_LIBRARY_PATH; the loader ignores it if `runpath` is not empty
  std::string runpath;  // searched after LD_LIBRARY_PATH, for `needed` of this file only
  // The dynamic string table, at most its first MiB. It holds the names of exported and imported symbols
  // among other texts, each ending with a zero byte.
  std::string dynamic_names;

  // Whether `name` is a whole entry of dynamic_names.
  bool has_dynamic_name(std::string_view name) const;
};

// Reads a file. Fails with ENOEXEC if it is no ELF file. For a 32-bit file or the other byte order, fills in
// only `is_64_bit` and `machine`.
Result<ElfFile> read_elf_file(const std::filesystem::path& file);

// Reads this program's own file. Returns an empty ElfFile if it cannot be read.
ElfFile own_elf_file();

}  // namespace verbena::commands::doctor
