// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace verbena::commands::doctor {

// What a loader would read of a program or a library. The file may be anything: no offset in it is believed.
struct ElfFile {
  // A version of symbols that the file needs of a library.
  struct NeededVersion {
    std::string library;
    std::string version;
  };
  bool is_64_bit = false;
  uint16_t machine = 0;  // EM_X86_64, ...
  bool dynamic = false;
  bool is_library = false;  // a shared object that other programs load, and no program
  std::string interpreter;  // the loader; empty: none, as of a static program and of most libraries
  std::string soname;       // the name by which others need it; empty: none
  std::vector<std::string> needed;
  std::vector<NeededVersion> needed_versions;  // without weak ones
  std::vector<std::string> defined_versions;
  std::string rpath;    // looked through before LD_LIBRARY_PATH
  std::string runpath;  // and this one after it
  // The names of symbols that it defines for others or takes from them, among other texts; each ends with a
  // zero byte. Only the first megabyte.
  std::string dynamic_names;

  bool has_dynamic_name(std::string_view name) const;
};

// ENOEXEC: it is no such file. Of one for machines of the other byte order, or of 32 bits, only the head is
// read.
Result<ElfFile> read_elf_file(const std::filesystem::path& file);

// The machine that this program is built for.
uint16_t own_machine();

}  // namespace verbena::commands::doctor
