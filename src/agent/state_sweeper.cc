// SPDX-License-Identifier: Apache-2.0
#include "agent/state_sweeper.h"

#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;

// Directories are named by the inode number of their network namespace; processes by their pid.
std::optional<uint64_t> number_of(const std::string& name) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

std::vector<fs::path> entries_of(const std::string& directory) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    paths.push_back(entry->path());
  }
  return paths;
}

// A symbolic link, or what another user owns, is none of an agent's.
// What an agent of that network namespace has left beside its directory (left_traces.h).
std::optional<uint64_t> number_of_traces(const std::string& name) {
  constexpr std::string_view kPrefix = "traces-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  return number_of(name.substr(kPrefix.size()));
}

bool is_own_directory(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

}  // namespace

UniqueFd lock_state_directory(const std::string& directory) {
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return {};
  return fd;
}

std::set<uint64_t> living_network_namespaces() {
  std::set<uint64_t> living;
  for (const fs::path& process : entries_of("/proc")) {
    if (!number_of(process.filename())) continue;
    struct stat status {};
    if (::stat((process / "ns/net").c_str(), &status) == 0) living.insert(status.st_ino);
  }
  return living;
}

size_t sweep_state_directories(const std::string& home, const std::set<uint64_t>& living, size_t most) {
  size_t removed = 0;
  for (const fs::path& path : entries_of(home)) {
    if (removed == most) break;
    if (const auto left = number_of_traces(path.filename())) {
      if (!living.contains(*left)) removed += ::unlink(path.c_str()) == 0 ? 1 : 0;
      continue;
    }
    const auto number = number_of(path.filename());
    if (!number || living.contains(*number) || !is_own_directory(path)) continue;
    const UniqueFd lock = lock_state_directory(path);
    if (!lock) continue;
    std::error_code error;
    fs::remove_all(path, error);
    if (error) {
      log_warning("{} is of a network namespace that is gone, and cannot be removed: {}", path.string(),
                  error.message());
    } else {
      ++removed;
    }
  }
  return removed;
}

}  // namespace verbena::agent
