// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fcntl.h>

#include "base/paths/state_path.h"

namespace verbena::sysfs {

// Restores errno at the end of its scope to its value at the beginning.
class ErrnoKeeper {
 public:
  ErrnoKeeper() : saved_(errno) {}
  ~ErrnoKeeper() { errno = saved_; }
  ErrnoKeeper(const ErrnoKeeper&) = delete;
  ErrnoKeeper& operator=(const ErrnoKeeper&) = delete;

 private:
  const int saved_;
};

// Whether relative paths may lead to the agent's directory; never reset. Set when the working directory
// enters a root (see ShownPath), or when the program asks for a root that the machine also has.
extern constinit std::atomic<bool> relative_paths_matter;

// Whether a path may lead to the agent's directory. Every intercepted call of every program makes this cheap
// check. All such paths contain "infiniband", or start with /sys/ and contain "rdma_cm".
inline bool may_be_shown(const char* path) {
  if (path == nullptr) return false;
  if (__builtin_expect(relative_paths_matter.load(std::memory_order_relaxed), 0) && path[0] != '/') {
    return path[0] != '\0';
  }
  if (__builtin_expect(std::strncmp(path, "/sys/", 5) == 0 && std::strstr(path, "rdma_cm") != nullptr, 0))
    return true;
  return __builtin_expect(std::strstr(path, "infiniband") != nullptr, 0);
}

// Translates a path of the program to the path that the system gets.
//
// The agent's directory mirrors the *roots*: /sys/class/infiniband (and _verbs, _mad, _cm), the directories
// to which their links lead, /sys/class/misc/rdma_cm and /dev/infiniband. A path below a root leads into the
// agent's directory if the first name below the root exists there; other paths are unchanged. So a machine
// with RDMA hardware shows both kinds of devices, and the agent's names take precedence.
//
// Paths are interpreted as the kernel does: relative to a working directory or descriptor, with doubled
// slashes, "." and "..". Symbolic links outside the roots that lead into a root are not followed. Performs no
// allocation and preserves errno.
class ShownPath {
 public:
  // `chosen` is the value of VERBENA_SYS_DIR, or nullptr if not set. `directory` is a descriptor or AT_FDCWD,
  // as in openat(2).
  ShownPath(const char* chosen, int directory, const char* path);

  // Whether the path leads into the agent's directory.
  bool shown() const { return shown_; }

  // Whether to pass target() to the system instead of the program's path. Also true if the path starts in or
  // goes through a root, but leads out of the agent's directory.
  bool replaced() const { return shown_ || through_root_; }
  const char* target() const { return target_.c_str(); }

  // The agent's directory, a prefix of target(). REQUIRES: shown()
  std::string_view home() const { return {target_.c_str(), home_size_}; }

  // If the path is a root itself, and both the agent's directory and the machine have it, returns that root.
  // A listing must then show the entries of both. Otherwise returns nullptr.
  const char* merged_root() const { return merged_root_; }

 private:
  bool look_up(const char* chosen, const paths::PathText& simple);
  paths::PathText start(const char* chosen, int directory);

  paths::PathText target_;
  size_t home_size_ = 0;
  const char* merged_root_ = nullptr;
  bool shown_ = false;
  bool through_root_ = false;
};

// Returns the root in which the path lies; nullptr if the path lies in no root. REQUIRES: the path is
// absolute, without double slashes, "." and ".."
const char* root_of(std::string_view path);

// If `path` names a parent directory of roots, such as /sys/class, returns that directory. `path` may be
// absolute, or "." for the working directory. Otherwise returns nullptr. A listing of that directory must
// show the roots in addition to the machine's entries.
const char* parent_of_root(const char* path);
// Records for later relative paths that the working directory is `path` now. Call after each chdir(2).
void note_working_directory(const char* path);
// Returns the directory with the entries that the agent adds to `parent`. The path is invalid if no directory
// of an agent is found.
paths::PathText shown_beside(const char* parent);

// If the directory `fd` is a root that exists both in the agent's directory and on the machine, returns the
// root: a listing must show the entries of both. Otherwise returns nullptr. Costs one load while
// relative_paths_matter is false.
const char* merged_root_open_as(int fd);

// Returns the value that VERBENA_SYS_DIR had at the first call, with symbolic links resolved. Returns nullptr
// if the variable was not set, or in a set-user-ID program.
const char* chosen_directory();

// Call function(directory, path) with the translated path (ShownPath), and return its result. with_path_at()
// first checks may_be_shown(), and translates the path only if the check succeeds.
template <class Function>
[[gnu::noinline]] auto call_with_shown(int directory, const char* path, Function function) {
  const ShownPath where(chosen_directory(), directory, path);
  return where.replaced() ? function(AT_FDCWD, where.target()) : function(directory, path);
}

template <class Function>
auto with_path_at(int directory, const char* path, Function function) {
  if (!may_be_shown(path)) return function(directory, path);
  return call_with_shown(directory, path, function);
}

// Like with_path_at(), for functions without a directory argument.
template <class Function>
auto with_path(const char* path, Function function) {
  return with_path_at(AT_FDCWD, path, [&](int, const char* target) { return function(target); });
}

}  // namespace verbena::sysfs
