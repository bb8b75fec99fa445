// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace verbena::commands {

// Where Verbena's own files are, found from the running program's place: the same program works installed
// under any prefix and in its build folder.
struct Installation {
  std::filesystem::path libraries;  // holds libibverbs.so.1 and its siblings
  std::filesystem::path preload;    // libverbena-sys.so; empty if this build has none
  std::filesystem::path memory;     // libverbena-memory.so, likewise
  std::filesystem::path agent;      // verbena-agent; empty if not found
  // The folder of commands that have the names of the system's, such as rdma; empty if this build has none.
  std::filesystem::path commands;
  // The folder of our own of rdma-core's programs, such as ibv_devinfo; empty if this build has none.
  std::filesystem::path programs;

  // `program` is the path of the running `verbena`, or of one of those commands. Nothing if no libraries
  // belong to it.
  static std::optional<Installation> find(const std::filesystem::path& program);
  static std::optional<Installation> of_this_program();

  // The program of that name in `programs`, or `rdma`; empty if there is none.
  std::filesystem::path program(const std::string& name) const;
};

// Says on standard error why of_this_program() has found none.
void complain_of_no_installation();

}  // namespace verbena::commands
