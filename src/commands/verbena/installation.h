// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/paths/root_only.h"
#include "control/client/agent_connection.h"

namespace verbena::commands {

// Locations of Verbena's own files, derived from the path of the running program. So an installation works
// under any prefix, and from its build folder.
struct Installation {
  std::filesystem::path libraries;  // holds libibverbs.so.1 and its siblings
  std::filesystem::path preload;    // libverbena-sys.so; empty if not built
  std::filesystem::path memory;     // libverbena-memory.so; empty if not built
  std::filesystem::path agent;      // verbena-agent; empty if not found
  // The folder of commands that have the names of system commands, such as rdma; empty if not built.
  std::filesystem::path commands;
  // The folder of our versions of rdma-core's programs, such as ibv_devinfo; empty if not built.
  std::filesystem::path programs;

  // Finds the installation that `program` belongs to. `program` is the path of the running `verbena`, or of a
  // file in `commands`. Returns nullopt if the installation has no libibverbs.so.1.
  static std::optional<Installation> find(const std::filesystem::path& program);
  // Calls find() for this process's program. Returns nullopt also if /proc is not mounted.
  static std::optional<Installation> of_this_program();

  // Returns the path of `name` in `commands` (for "rdma") or in `programs`. Returns an empty path if none.
  std::filesystem::path program(const std::string& name) const;
};

// Prints to standard error why of_this_program() has found no installation. Returns kFailed.
int complain_of_no_installation();

// Returns options for connecting to the agent. With them, a connection starts the agent of this program's
// installation if no agent runs.
control::ConnectOptions start_installed_agent();

// Finds a file of Verbena that users other than root can change; nullopt if there is none. `verbena system
// on` refuses if there is one, since it makes root's programs load these files. Checks the agent, preloads,
// commands, programs, and everything below the libraries' folder, since the loader's cache lists all files
// there. Follows links.
std::optional<paths::Changeable> find_changeable_file(const Installation& installation);

}  // namespace verbena::commands
