// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fcntl.h>

#include "base/paths/path_text.h"

namespace verbena::sysfs {

// Set once relative paths may start inside what we show: the working directory is there, or the program asked
// for a root that the machine also has.
extern constinit std::atomic<bool> relative_paths_matter;

// The check that every call of every program pays: every path that we show has this word in it, or lies in
// /sys and has the other.
inline bool may_be_shown(const char* path) {
  if (path == nullptr) return false;
  if (__builtin_expect(relative_paths_matter.load(std::memory_order_relaxed), 0) && path[0] != '/') {
    return path[0] != '\0';
  }
  if (__builtin_expect(std::strncmp(path, "/sys/", 5) == 0 && std::strstr(path, "rdma_cm") != nullptr, 0))
    return true;
  return __builtin_expect(std::strstr(path, "infiniband") != nullptr, 0);
}

// Where a path that a program uses really leads.
//
// The agent's directory mirrors /sys/class/infiniband (and _verbs, _mad, _cm), what those lead to,
// /sys/class/misc/rdma_cm and /dev/infiniband: "the roots". A path below a root leads into the directory when
// its name exists there; any other path is unchanged. So a machine with RDMA hardware shows both, and the
// agent's names win.
//
// A path is understood as the kernel would: relative to a working directory or descriptor, with doubled
// slashes, "." and "..". Symbolic links outside the roots that lead into them are not followed. No
// allocation; errno stays as it is.
class ShownPath {
 public:
  // `chosen`: what VERBENA_SYS_DIR says, nullptr when not set. `directory`: as in openat(2).
  ShownPath(const char* chosen, int directory, const char* path);

  // Whether the path leads into the agent's directory.
  bool shown() const { return shown_; }

  // Whether the system needs target() instead of the program's path. Also true where the path starts in a
  // root or goes through one, but leads out of what the agent shows.
  bool replaced() const { return shown_ || through_root_; }
  const char* target() const { return target_.c_str(); }

  // The agent's directory, a prefix of target(). REQUIRES: shown()
  std::string_view home() const { return {target_.c_str(), home_size_}; }

  // When target() mirrors a whole root that the machine also has: that root, because a listing must show
  // both. nullptr otherwise.
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

// The root in which the path lies, nullptr if in none. REQUIRES: the path is absolute and in its simplest
// form
const char* root_of(std::string_view path);

// The directory of roots, such as /sys/class, that `path` names, absolute or as the working directory;
// nullptr: none. Its listing has to show the roots, too, while all else in it stays the machine's own.
const char* parent_of_root(const char* path);
// To be called when the working directory is this one.
void note_working_directory(const char* path);
// The folder with the entries that the agent adds to such a directory. Invalid where there is no agent.
paths::PathText shown_beside(const char* parent);

// The root that `fd` has open if it must be listed merged, else nullptr. A single load as long as the program
// never asked for such a root.
const char* merged_root_open_as(int fd);

// What VERBENA_SYS_DIR said when first asked for; nullptr when it was not set.
const char* chosen_directory();

// Calls function(directory, path) with the place where the path leads.
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

// The same for functions without a directory argument.
template <class Function>
auto with_path(const char* path, Function function) {
  return with_path_at(AT_FDCWD, path, [&](int, const char* target) { return function(target); });
}

}  // namespace verbena::sysfs
