// SPDX-License-Identifier: Apache-2.0
#include "base/paths/state_path.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
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

// True also if nobody may look at it, as at the root of another user's FUSE file system.
bool is_anothers(const char* path, uid_t owner) {
  struct stat status;
  return lstat(path, &status) != 0 ? errno != ENOENT : status.st_uid != shown_as(owner);
}

// Appends the suffix of the first directory that add_drawn_suffix() has named for `home`. Nothing if there is
// none. Reads names by bare system calls and into a small buffer, like is_in_use().
void add_found_suffix(uid_t owner, PathText& home) {
  constexpr std::string_view kTmp = "/tmp/";
  constexpr size_t kNameOffset = offsetof(dirent64, d_name);
  const size_t size = home.view().size();
  std::string_view name = home.view();
  name.remove_prefix(kTmp.size());
  const auto folder = syscall(SYS_openat, AT_FDCWD, kTmp.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  std::array<char, kDrawnSuffix> first{};
  alignas(dirent64) std::array<char, 1024> entries;
  for (;;) {
    const auto bytes = syscall(SYS_getdents64, folder, entries.data(), entries.size());
    if (bytes <= 0) break;
    for (size_t at = 0; at < static_cast<size_t>(bytes);) {
      uint16_t length;
      std::memcpy(&length, entries.data() + at + offsetof(dirent64, d_reclen), sizeof length);
      const std::string_view entry(entries.data() + at + kNameOffset);
      at += length;
      if (entry.size() != name.size() + kDrawnSuffix || !entry.starts_with(name)) continue;
      const std::string_view suffix(entry.data() + name.size(), kDrawnSuffix);
      if (suffix[0] != '-' || (first[0] != 0 && suffix >= std::string_view(first.data(), first.size())))
        continue;
      home.add(suffix);
      if (is_private_directory(home.c_str(), owner)) std::memcpy(first.data(), suffix.data(), first.size());
      home.shorten(size);
    }
  }
  syscall(SYS_close, folder);
  if (first[0] != 0) home.add({first.data(), first.size()});
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
    if (is_anothers(home.c_str(), owner)) add_found_suffix(owner, home);
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

bool add_drawn_suffix(PathText& home) {
  uint64_t drawn;
  if (syscall(SYS_getrandom, &drawn, sizeof drawn, GRND_NONBLOCK) != sizeof drawn) return false;
  home.add("-");
  for (size_t i = 1; i < kDrawnSuffix; ++i, drawn >>= 4) home.add({&"0123456789abcdef"[drawn % 16], 1});
  return home.valid();
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
