// SPDX-License-Identifier: Apache-2.0
#include "paths/state_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "paths/users.h"

namespace verbena::paths {
namespace {

// One of a former release does not say; nor can a program ask that has no descriptor left. Straight to the
// kernel, not through functions that are interposed.
bool is_in_use(PathText directory) {
  const auto fd = syscall(SYS_openat, AT_FDCWD, directory.add(kInUse).c_str(),
                          O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return true;
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

PathText find_state_path(const char* chosen) {
  PathText path;
  if (chosen != nullptr) {
    struct stat status;
    path.add(chosen);
    if (chosen[0] != '/' || stat(chosen, &status) != 0 || !S_ISDIR(status.st_mode)) path.invalidate();
    return path;
  }
  const uid_t own = own_user();
  PathText left_behind;
  left_behind.invalidate();
  for (uid_t owner : {uid_t{0}, own}) {
    path = state_home_for(owner);
    if (!is_trusted_directory(path.c_str())) continue;
    add_namespace(path);
    if (!path.valid() || !is_trusted_directory(path.c_str())) continue;
    if (owner == own || is_in_use(path)) return path;
    left_behind = path;
  }
  return left_behind;
}

}  // namespace verbena::paths
