// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/system_files.h"

#include <filesystem>
#include <set>
#include <system_error>

#include "control/model/agent_starter.h"

namespace verbena::commands {
namespace {

namespace fs = std::filesystem;

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
