// SPDX-License-Identifier: Apache-2.0
#include "base/paths/state_path.h"

#include <optional>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/paths/users.h"

namespace verbena::paths {
namespace {

// Whether the agent or mirror of a directory lives. `assumed` is returned if the lock file cannot be opened:
// agents of former releases have none, and a program may have no free descriptor. Bare system calls, since
// the C library's functions are interposed.
bool is_in_use(PathText& directory, bool assumed) {
  const size_t size = directory.view().size();
  const auto fd = syscall(SYS_openat, AT_FDCWD, directory.add(kInUse).c_str(),
                          O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  directory.shorten(size);
  if (fd < 0) return assumed;
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  const bool is_known = syscall(SYS_fcntl, fd, F_OFD_GETLK, &lock) == 0;
  syscall(SYS_close, fd);
  return !is_known || lock.l_type != F_UNLCK;
}

// Appends the inode number of the network namespace: namespaces may share a file system.
void add_namespace(PathText& home, const char* of = "/proc/self/ns/net") {
  struct stat status;
  if (stat(of, &status) != 0) {
    home.invalidate();
  } else {
    home.add("/").add_number(status.st_ino);
  }
}

// Does not use XDG_RUNTIME_DIR: all processes of a user must agree whatever their environment.
void set_state_home(uid_t owner, PathText& home) {
  home.clear();
  if (owner == 0) {
    home.add("/run/verbena");
    return;
  }
  home.add("/run/user/").add_number(owner);
  if (is_private_directory(home.c_str(), owner)) {
    home.add("/verbena");
  } else {
    home.clear();
    home.add("/tmp/verbena-").add_number(owner);
  }
}

// Sets `path` to the user's trusted directory for this network namespace. False if there is none.
bool find_in_home(uid_t owner, std::string_view suffix, PathText& path) {
  set_state_home(owner, path);
  if (!is_trusted_directory(path.c_str())) return false;
  add_namespace(path);
  path.add(suffix);
  return path.valid() && is_trusted_directory(path.c_str());
}

// Uses one PathText, since the preload library runs on small stacks. A mirror's lock file appears when the
// mirror is complete; a mirror without it does not count.
ShownBy find_state(PathText& path) {
  const uid_t owners[] = {0, own_user()};
  std::optional<uid_t> left_behind;
  for (const std::string_view suffix : {std::string_view(), kMirrorSuffix}) {
    const bool is_agents = suffix.empty();
    for (const uid_t owner : owners) {
      if (!find_in_home(owner, suffix, path)) continue;
      if (is_in_use(path, is_agents)) return is_agents ? ShownBy::kAgent : ShownBy::kMirror;
      if (is_agents) left_behind = owner;
    }
  }
  if (!left_behind || !find_in_home(*left_behind, {}, path)) path.invalidate();
  return ShownBy::kNobody;
}

}  // namespace

bool is_private_directory(const char* path, uid_t owner) {
  struct stat status;
  if (lstat(path, &status) != 0 || !S_ISDIR(status.st_mode) || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return false;
  }
  return status.st_uid == shown_as(owner) || (owner == 0 && is_unmapped_roots(path));
}

PathText state_home_for(uid_t owner) {
  PathText home;
  set_state_home(owner, home);
  return home;
}

PathText state_path_for(uid_t owner) {
  PathText path = state_home_for(owner);
  add_namespace(path);
  return path;
}

PathText agent_socket_path(uid_t owner) {
  PathText path = state_home_for(owner);
  const bool is_home = is_private_directory(path.c_str(), owner);
  add_namespace(path, "/proc/thread-self/ns/net");
  if (!is_home || !is_private_directory(path.c_str(), owner)) path.invalidate();
  return path.add("/agent");
}

bool is_trusted_directory(const char* path) {
  return is_private_directory(path, 0) || is_private_directory(path, own_user());
}

PathText mirror_path_for(uid_t owner) {
  return state_path_for(owner).add(kMirrorSuffix);
}

PathText find_state_path(const char* chosen) {
  PathText path;
  if (chosen == nullptr) {
    find_state(path);
    return path;
  }
  struct stat status;
  path.add(chosen);
  if (chosen[0] != '/' || stat(chosen, &status) != 0 || !S_ISDIR(status.st_mode)) path.invalidate();
  return path;
}

ShownBy state_is_shown_by() {
  PathText path;
  return find_state(path);
}

}  // namespace verbena::paths
