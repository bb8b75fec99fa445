// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/installation.h"

#include <set>
#include <system_error>

#include "base/paths/state_directory.h"
#include "commands/verbena/report.h"
#include "control/model/agent_process.h"

namespace verbena::commands {
namespace {

namespace fs = std::filesystem;

// Sub-folders of the libraries' folder, which is in no user's PATH.
constexpr const char* kCommands = "bin";
constexpr const char* kPrograms = "programs";

bool holds_libraries(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "libibverbs.so.1", ignored);
}

fs::path if_there(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(file, ignored) ? file : fs::path();
}

// Checks files recursively. Visits each folder once, even if several links lead to it.
class Search {
 public:
  std::optional<paths::Changeable> look_at(const fs::path& path) {
    if (auto found = paths::find_changeable(path)) return found;
    std::error_code error;
    const fs::path folder = fs::canonical(path, error);
    if (error || !fs::is_directory(folder, error) || !visited_.insert(folder).second) return std::nullopt;
    fs::directory_iterator entry(folder, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      if (auto found = look_at(entry->path())) return found;
    }
    if (error) return paths::Changeable{folder, error.value()};
    return std::nullopt;
  }

 private:
  std::set<fs::path> visited_;
};

}  // namespace

std::optional<Installation> Installation::find(const fs::path& program) {
  fs::path folder = program.parent_path();
  const fs::path above = folder.parent_path();
  if (folder.filename() == kCommands && above.filename() == "verbena" && holds_libraries(above)) {
    folder = (above / VERBENA_BINDIR_FROM_LIBDIR).lexically_normal();
  }
  const fs::path installed = (folder / VERBENA_LIBDIR_FROM_BINDIR).lexically_normal();
  // <prefix>/lib may hold the system's own libibverbs.so.1. Only in a build folder is the one there ours.
  const fs::path built = folder.parent_path() / "lib";
  const bool in_build_folder = !if_there(folder.parent_path() / "CMakeCache.txt").empty();

  Installation found;
  if (in_build_folder && holds_libraries(built)) {
    found.libraries = built;
  } else if (holds_libraries(installed)) {
    found.libraries = installed;
  } else {
    return std::nullopt;
  }
  const fs::path commands = in_build_folder ? folder : found.libraries / kCommands;
  if (!if_there(commands / "rdma").empty()) found.commands = commands;
  found.programs = if_there((in_build_folder ? folder.parent_path() : found.libraries) / kPrograms);
  found.preload = if_there(found.libraries / "libverbena-sys.so");
  found.memory = if_there(found.libraries / "libverbena-memory.so");
  found.agent = if_there(folder / "verbena-agent");
  if (found.agent.empty()) found.agent = if_there(found.libraries / "verbena-agent");
  return found;
}

std::optional<Installation> Installation::of_this_program() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return std::nullopt;
  return find(program);
}

int complain_of_no_installation() {
  const char* missing = paths::missing_system_file();
  return complain("{}", missing != nullptr
                            ? missing
                            : "no libibverbs.so.1 of Verbena's beside this program: is it copied out "
                              "of its installation?");
}

control::ConnectOptions start_installed_agent() {
  const auto installation = Installation::of_this_program();
  return {.start_agent = true, .agent_program = installation ? installation->agent.string() : ""};
}

fs::path Installation::program(const std::string& name) const {
  const bool plain = !name.empty() && name.front() != '.' && name.find('/') == std::string::npos;
  std::error_code ignored;
  if (name == "rdma" && !commands.empty()) return if_there(commands / name);
  if (programs.empty() || !plain) return {};
  const fs::path file = programs / name;
  return fs::is_regular_file(file, ignored) ? file : fs::path();
}

std::optional<paths::Changeable> find_changeable_file(const Installation& installation) {
  Search search;
  std::error_code error;
  const fs::path libraries = fs::canonical(installation.libraries, error);
  const fs::path started = error ? fs::path() : fs::path(control::find_agent_beside(libraries));
  for (const fs::path& path : {installation.libraries, started, installation.agent, installation.preload,
                               installation.memory, installation.commands, installation.programs}) {
    if (path.empty()) continue;
    if (auto found = search.look_at(path)) return found;
  }
  return std::nullopt;
}

}  // namespace verbena::commands
