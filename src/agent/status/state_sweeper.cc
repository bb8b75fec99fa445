// SPDX-License-Identifier: Apache-2.0
#include "agent/status/state_sweeper.h"

#include <charconv>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "agent/status/kept_traces.h"
#include "agent/takeover/agent_name.h"
#include "base/format.h"
#include "base/log.h"
#include "base/paths/state_path.h"
#include "base/same_file.h"

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSetAside = ".set-aside-";

// Parses a file name that is a number: directories are named after their network namespace's inode, processes
// after their pid.
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

// Whether it is the name of a directory that was set aside, or of a mirror's: no agent continues with these.
bool is_of_nobody(const std::string& name) {
  std::string_view of(name);
  const size_t aside = of.find(kSetAside);
  of = of.substr(0, aside);
  const bool is_mirrors = of.ends_with(paths::kMirrorSuffix);
  if (is_mirrors) of.remove_suffix(paths::kMirrorSuffix.size());
  return (aside != std::string::npos || is_mirrors) && number_of(std::string(of));
}

// Returns the network namespace in the name of a file that an agent left beside its directory (kept_traces.h,
// agent_log.h).
std::optional<uint64_t> number_of_file(const std::string& name) {
  for (const std::string_view prefix : {"traces-", "log-", "old-log-"}) {
    if (name.starts_with(prefix)) return number_of(name.substr(prefix.size()));
  }
  return std::nullopt;
}

bool is_older_than(const fs::path& path, fs::file_time_type::duration age) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - written > age;
}

// Whether it is a directory of this user. Agents create no symbolic links here.
bool is_own_directory(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

// Creates the file if it is missing. Returns an empty descriptor if another process has the lock.
UniqueFd lock_file(const std::string& file) {
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  const bool is_locked = fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
  // The process that had the lock before may have removed the file.
  return is_locked && is_same_file(fd.get(), file.c_str()) ? std::move(fd) : UniqueFd();
}

// Renames a directory that is about to be removed. Holds its agent lock meanwhile, so that no agent starts
// there (AgentName). Nothing if an agent has started, or the file system fails.
std::optional<std::string> take_name_from(const std::string& directory) {
  const UniqueFd lock = lock_file(AgentName::lock_file_in(directory));
  return lock ? set_aside(directory) : std::nullopt;
}

// Removes one entry if it is unused. Checks the namespace again under the lock, because another namespace may
// have the number by now.
bool sweep(const fs::path& path, const std::set<uint64_t>& alive,
           const std::function<std::set<uint64_t>()>& living, const std::function<bool()>& is_over) {
  const std::string name = path.filename();
  if (const auto left = number_of_file(name)) {
    return !alive.contains(*left) && is_older_than(path, kLongestLeft) && ::unlink(path.c_str()) == 0;
  }
  const bool nobodys = is_of_nobody(name);
  const auto number = number_of(name);
  const auto may_be_removed = [&](const std::set<uint64_t>& used) {
    return nobodys || (number && !used.contains(*number));
  };
  if (!may_be_removed(alive) || !is_own_directory(path)) return false;
  const bool is_mirrors = name.ends_with(paths::kMirrorSuffix);
  const UniqueFd lock = is_mirrors ? lock_mirror_directory(path) : lock_state_directory(path);
  if (!lock || !may_be_removed(living())) return false;
  const auto removed = nobodys ? path.string() : take_name_from(path);
  return removed && remove_by_and_by(*removed, is_over);
}

}  // namespace

UniqueFd lock_state_directory(const std::string& directory) {
  return lock_file(directory + "/state.lock");
}

UniqueFd lock_mirror_directory(const std::string& directory) {
  return lock_file(directory + "/mirror.lock");
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

std::optional<std::string> set_aside(const std::string& directory) {
  const std::string aside = verbena::format("{}{}{}-{}", directory, kSetAside, ::getpid(),
                                            MonotonicClock::now().time_since_epoch().count());
  if (::rename(directory.c_str(), aside.c_str()) != 0) return std::nullopt;
  return aside;
}

bool remove_by_and_by(const std::string& path, const std::function<bool()>& is_over) {
  if (fs::is_directory(fs::symlink_status(path))) {
    for (const fs::path& entry : entries_of(path)) {
      if (!remove_by_and_by(entry, is_over)) return false;
    }
  }
  if (is_over()) return false;
  fs::remove(path);
  return true;
}

size_t sweep_state_directories(const std::string& home, const std::function<std::set<uint64_t>()>& living,
                               const std::function<bool()>& is_over) {
  const std::set<uint64_t> alive = living();
  size_t removed = 0;
  for (const fs::path& path : entries_of(home)) {
    if (is_over()) break;
    try {
      removed += sweep(path, alive, living, is_over) ? 1 : 0;
    } catch (const fs::filesystem_error& error) {
      log_warning("{} is of an agent that is gone, and cannot be removed: {}", path.string(), error.what());
    }
  }
  return removed;
}

std::jthread sweep_later(std::string home, Duration delay) {
  const auto run = [home = std::move(home), delay](const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait_for(lock, stop, delay, [] { return false; });
    const auto is_over = [&] { return stop.stop_requested(); };
    if (is_over()) return;
    try {
      sweep_state_directories(home, living_network_namespaces, is_over);
    } catch (const std::exception& error) {
      log_warning("the state directories of agents that are gone stay: {}", error.what());
    }
  };
  try {
    return std::jthread(run);
  } catch (const std::system_error& error) {
    log_warning("the state directories of agents that are gone stay: no thread: {}", error.what());
    return {};
  }
}

}  // namespace verbena::agent
