// SPDX-License-Identifier: Apache-2.0
#include "preload/sysfs/shown_path.h"

#include <cstdlib>

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena::sysfs {
namespace {

using paths::PathText;

constexpr const char* kRoots[] = {"/sys/class/infiniband",
                                  "/sys/class/infiniband_verbs",
                                  "/sys/class/infiniband_mad",
                                  "/sys/class/infiniband_cm",
                                  "/sys/class/misc/rdma_cm",
                                  "/sys/devices/infiniband.verbena",
                                  "/sys/devices/virtual/misc/rdma_cm",
                                  "/dev/infiniband"};
// Directories that programs list to find roots.
constexpr const char* kParents[] = {"/sys/class", "/sys/class/misc", "/dev"};

// Calls the kernel directly, not through the functions that we intercept.
bool status_of(const char* path, struct stat& status) {
  return syscall(SYS_newfstatat, AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

bool exists(const char* path) {
  struct stat status;
  return status_of(path, status);
}

// "" is the root directory.
bool is_directory(const char* path) {
  struct stat status;
  return *path == '\0' || (status_of(path, status) && S_ISDIR(status.st_mode));
}

// Returns the absolute path of the directory from which a relative path starts.
PathText base_of(int directory) {
  PathText base;
  long size = 0;
  if (directory == AT_FDCWD) {
    // The size includes the terminating zero.
    size = syscall(SYS_getcwd, base.data(), PathText::capacity()) - 1;
  } else if (directory >= 0) {
    PathText link("/proc/self/fd/");
    link.add_number(static_cast<unsigned>(directory));
    size = syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), base.data(), PathText::capacity());
  }
  if (size <= 0 || base.data()[0] != '/') {
    base.invalidate();
  } else {
    base.shorten(size == 1 ? 0 : static_cast<size_t>(size));  // "/": the rest begins with a slash
  }
  return base;
}

struct Component {
  std::string_view name;
  const char* rest;  // the rest of the path, from the slash on
};

Component next_component(const char* path) {
  const size_t slashes = std::strspn(path, "/");
  const size_t size = std::strcspn(path + slashes, "/");
  return {{path + slashes, size}, path + slashes + size};
}

size_t parent_size(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash != std::string_view::npos ? slash : 0;
}

}  // namespace

constinit std::atomic<bool> relative_paths_matter{false};

const char* root_of(std::string_view path) {
  for (const char* root : kRoots) {
    const size_t size = std::strlen(root);
    if (path.size() < size || std::memcmp(path.data(), root, size) != 0) continue;
    if (path.size() == size || path[size] == '/') return root;
  }
  return nullptr;
}

ShownPath::ShownPath(const char* chosen, int directory, const char* path) {
  if (strnlen(path, PATH_MAX) == PATH_MAX) return;
  const ErrnoKeeper keeper;
  PathText simple = path[0] == '/' ? PathText() : start(chosen, directory);
  const char* rest = path;
  bool ends_in_dot = false;
  for (Component next = next_component(rest); !next.name.empty(); next = next_component(rest)) {
    ends_in_dot = next.name == ".";
    if (next.name == "..") {
      // Only the kernel knows where ".." leads from a symbolic link, so the kernel gets the rest.
      if (!is_directory(look_up(chosen, simple) ? target() : simple.c_str())) break;
      through_root_ |= root_of(simple.view()) != nullptr;
      simple.shorten(parent_size(simple.view()));
    } else if (!ends_in_dot) {
      simple.add("/").add(next.name);
    }
    rest = next.rest;
  }
  if (ends_in_dot && *rest == '\0') rest = "/";  // requires a directory, as the dot does
  // The rest of a relative path does not begin with a slash.
  const char* const slash = *rest == '\0' || *rest == '/' ? "" : "/";
  if (!simple.valid()) {
    through_root_ = false;
  } else if (look_up(chosen, simple)) {
    shown_ = target_.add(slash).add(rest).valid();
    through_root_ &= shown_;  // the kernel will refuse a path that is too long
    const char* root = root_of(simple.view());
    if (shown_ && simple.view() == root && exists(root)) {
      merged_root_ = root;
      relative_paths_matter.store(true, std::memory_order_relaxed);
    }
  } else if (through_root_) {
    target_ = simple.add(slash).add(rest);
    if (target_.view().empty()) target_.add("/");  // the path leads to the root directory
    through_root_ = target_.valid();
  }
}

// Returns the place where a relative path starts, as the program sees it.
PathText ShownPath::start(const char* chosen, int directory) {
  PathText base = base_of(directory);
  const PathText home = paths::find_state_path(chosen);
  const size_t size = home.view().size();
  const bool below_home = base.valid() && home.valid() && std::strncmp(base.c_str(), home.c_str(), size) == 0;
  if (!below_home || root_of(base.c_str() + size) == nullptr) return base;
  through_root_ = true;
  return PathText(base.c_str() + size);
}

bool ShownPath::look_up(const char* chosen, const PathText& simple) {
  const char* root = root_of(simple.view());
  if (root == nullptr) return false;
  target_ = paths::find_state_path(chosen);
  home_size_ = target_.view().size();
  // The first name below the root decides for everything below that name.
  const char* below = simple.c_str() + std::strlen(root);
  const char* deeper = next_component(below).rest;
  target_.add({simple.c_str(), static_cast<size_t>(deeper - simple.c_str())});
  if (!target_.valid() || !exists(target_.c_str())) return false;
  return target_.add(deeper).valid();
}

namespace {

constinit std::atomic<bool> is_in_parent{false};  // whether the working directory is in kParents

}  // namespace

const char* parent_of_root(const char* path) {
  if (path == nullptr) return nullptr;
  PathText base;
  if (path[0] == '.' && path[std::strspn(path, "./")] == '\0' &&
      is_in_parent.load(std::memory_order_relaxed)) {
    if (std::strstr(path, "..") != nullptr) return nullptr;
    const ErrnoKeeper keeper;
    base = base_of(AT_FDCWD);
    path = base.c_str();
  }
  for (const char* parent : kParents) {
    const size_t size = std::strlen(parent);
    if (std::strncmp(path, parent, size) == 0 && path[size + std::strspn(path + size, "/")] == '\0')
      return parent;
  }
  return nullptr;
}

void note_working_directory(const char* path) {
  if (may_be_shown(path)) relative_paths_matter.store(true, std::memory_order_relaxed);
  if (parent_of_root(path) != nullptr) is_in_parent.store(true, std::memory_order_relaxed);
}

paths::PathText shown_beside(const char* parent) {
  const ErrnoKeeper keeper;
  PathText place = paths::find_state_path(chosen_directory());
  return place.add(parent);
}

const char* merged_root_open_as(int fd) {
  if (!relative_paths_matter.load(std::memory_order_relaxed)) return nullptr;
  return ShownPath(chosen_directory(), fd, ".").merged_root();
}

namespace {

// Writes the path in its simplest form, in which the kernel reports working directories; unchanged if it does
// not exist (yet). A relative path becomes empty.
void simplify(const char* value, char* simple) {
  const size_t size = strnlen(value, PATH_MAX);
  if (value[0] != '/' || size == PATH_MAX) {
    simple[0] = '\0';  // matches no path
  } else if (::realpath(value, simple) == nullptr) {
    std::memcpy(simple, value, size + 1);
  }
}

}  // namespace

const char* chosen_directory() {
  enum State { kUnread, kReading, kUnset, kSet };
  static constinit std::atomic<State> state{kUnread};
  static char simple[PATH_MAX];  // a copy, because the program may change its environment at any time
  if (state.load(std::memory_order_acquire) == kUnread) {
    // realpath() is intercepted, and may call this function.
    state.store(kReading, std::memory_order_relaxed);
    const char* value = secure_getenv("VERBENA_SYS_DIR");
    if (value != nullptr) simplify(value, simple);
    state.store(value != nullptr ? kSet : kUnset, std::memory_order_release);
  }
  return state.load(std::memory_order_relaxed) == kSet ? simple : nullptr;
}

namespace {

// Initializes the state before the program starts threads or changes its environment.
[[gnu::constructor]] void look_around() {
  const ErrnoKeeper keeper;
  chosen_directory();
  const PathText base = base_of(AT_FDCWD);
  if (base.valid()) note_working_directory(base.c_str());
}

}  // namespace
}  // namespace verbena::sysfs
