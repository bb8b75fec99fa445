// SPDX-License-Identifier: Apache-2.0
#include "paths/state_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "paths/users.h"

namespace verbena::paths {
namespace {

// One of a former release does not say; nor can a program ask that has no descriptor left: then it is as
// `assumed`. Straight to the kernel, not through functions that are interposed.
bool is_in_use(PathText directory, bool assumed) {
  const auto fd = syscall(SYS_openat, AT_FDCWD, directory.add(kInUse).c_str(),
                          O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return assumed;
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  const bool is_known = syscall(SYS_fcntl, fd, F_OFD_GETLK, &lock) == 0;
  syscall(SYS_close, fd);
  return !is_known || lock.l_type != F_UNLCK;
}

// home/<inode of the network namespace>: tells namespaces apart that share a file system.
void add_namespace(PathText& home, const char* of = "/proc/self/ns/net") {
  struct stat status;
  if (stat(of, &status) != 0) {
    home.invalidate();
  } else {
    home.add("/").add_number(status.st_ino);
  }
}

// A trusted directory of a user's for this network namespace, or an invalid path.
PathText find_in_home(uid_t owner, std::string_view suffix) {
  PathText path = state_home_for(owner);
  if (is_trusted_directory(path.c_str())) {
    add_namespace(path);
    path.add(suffix);
    if (path.valid() && is_trusted_directory(path.c_str())) return path;
  }
  path.invalidate();
  return path;
}

struct FoundState {
  PathText path;
  ShownBy by = ShownBy::kNobody;
};

// A mirror is marked when it is complete, and without its mark it is none.
FoundState find_state() {
  const uid_t owners[] = {0, own_user()};
  PathText left_behind;
  left_behind.invalidate();
  for (const std::string_view suffix : {std::string_view(), kMirrorSuffix}) {
    const bool is_agents = suffix.empty();
    for (const uid_t owner : owners) {
      const PathText path = find_in_home(owner, suffix);
      if (!path.valid()) continue;
      if (is_in_use(path, is_agents)) return {path, is_agents ? ShownBy::kAgent : ShownBy::kMirror};
      if (is_agents) left_behind = path;
    }
  }
  return {left_behind, ShownBy::kNobody};
}

}  // namespace

bool is_private_directory(const char* path, uid_t owner) {
  struct stat status;
  if (lstat(path, &status) != 0 || !S_ISDIR(status.st_mode) || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return false;
  }
  return status.st_uid == shown_as(owner) || (owner == 0 && is_unmapped_roots(path));
}

// Not from XDG_RUNTIME_DIR: the processes of a user must agree whatever their environment.
PathText state_home_for(uid_t owner) {
  if (owner == 0) return PathText("/run/verbena");
  PathText runtime("/run/user/");
  runtime.add_number(owner);
  if (is_private_directory(runtime.c_str(), owner)) return runtime.add("/verbena");
  return PathText("/tmp/verbena-").add_number(owner);
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
  if (chosen == nullptr) return find_state().path;
  struct stat status;
  PathText path(chosen);
  if (chosen[0] != '/' || stat(chosen, &status) != 0 || !S_ISDIR(status.st_mode)) path.invalidate();
  return path;
}

ShownBy state_is_shown_by() {
  return find_state().by;
}

}  // namespace verbena::paths
