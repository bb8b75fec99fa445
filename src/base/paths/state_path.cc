// SPDX-License-Identifier: Apache-2.0
#include "base/paths/state_path.h"

#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <optional>
#include <string_view>
#include <system_error>

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

// The suffix of the directory that was found last, as a number; 0: none was found. Programs may search for
// each file that they open, and /tmp may have any number of names.
constinit std::atomic<uint64_t> found_suffix{0};
// The time before which nothing is searched for again, in nanoseconds of CLOCK_MONOTONIC. A search that finds
// nothing takes as long as other users like, who may fill /tmp. So searches have a tenth of the time.
constinit std::atomic<int64_t> next_search{0};
constexpr int64_t kPausePerSearch = 10;
// The number of names in /tmp that one search looks at: an estimated 0.15 s, in each new process.
constexpr size_t kMaxNames = 65'536;

int64_t nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

void add_suffix(uint64_t number, PathText& home) {
  home.add("-");
  for (int shift = 60; shift >= 0; shift -= 4) home.add({&"0123456789abcdef"[number >> shift & 15], 1});
}

std::optional<uint64_t> read_suffix(std::string_view text) {
  if (text.size() != kDrawnSuffix || text.front() != '-') return std::nullopt;
  text.remove_prefix(1);
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool has_home(uid_t owner, uint64_t suffix, PathText& home) {
  const size_t size = home.view().size();
  add_suffix(suffix, home);
  const bool is_there = is_private_directory(home.c_str(), owner);
  home.shorten(size);
  return is_there;
}

// Returns the lowest suffix of the directories in /tmp that add_drawn_suffix() has named for `home`, or 0.
// Reads names by bare system calls and into a small buffer, like is_in_use().
uint64_t search_suffix(uid_t owner, PathText& home) {
  constexpr std::string_view kTmp = "/tmp/";
  constexpr size_t kNameOffset = offsetof(dirent64, d_name);
  std::string_view name = home.view();
  name.remove_prefix(kTmp.size());
  const auto folder = syscall(SYS_openat, AT_FDCWD, kTmp.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return 0;
  uint64_t first = 0;
  size_t names = 0;
  alignas(dirent64) std::array<char, 1024> entries;
  while (names < kMaxNames) {
    const auto bytes = syscall(SYS_getdents64, folder, entries.data(), entries.size());
    if (bytes <= 0) break;
    for (size_t at = 0; at < static_cast<size_t>(bytes);) {
      uint16_t length;
      std::memcpy(&length, entries.data() + at + offsetof(dirent64, d_reclen), sizeof length);
      std::string_view entry(entries.data() + at + kNameOffset);
      at += length;
      ++names;
      if (!entry.starts_with(name)) continue;
      entry.remove_prefix(name.size());
      const auto suffix = read_suffix(entry);
      const bool is_first = suffix && *suffix != 0 && (first == 0 || *suffix < first);
      if (is_first && has_home(owner, *suffix, home)) first = *suffix;
    }
  }
  syscall(SYS_close, folder);
  return first;
}

// Appends the suffix of the user's directory with a drawn name. Nothing if there is none.
void add_found_suffix(uid_t owner, PathText& home) {
  uint64_t suffix = found_suffix;
  if (suffix == 0 || !has_home(owner, suffix, home)) {
    const int64_t begin = nanoseconds(CLOCK_MONOTONIC);
    if (begin < next_search) return;
    found_suffix = suffix = search_suffix(owner, home);
    const int64_t end = nanoseconds(CLOCK_MONOTONIC);
    next_search = end + kPausePerSearch * (end - begin);
  }
  if (suffix != 0) add_suffix(suffix, home);
}

// Does not use XDG_RUNTIME_DIR: all processes of a user must agree whatever their environment. Another user
// who has taken the usual name in /tmp may remove its directory later. Then the one with a drawn name remains
// the user's.
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
    if (!is_private_directory(home.c_str(), owner)) add_found_suffix(owner, home);
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

// The time is in front, so that of several new directories the oldest is the first.
bool add_drawn_suffix(PathText& home) {
  constexpr int kDrawnBits = 16;
  constexpr int64_t kUnit = 16'000;  // nanoseconds; 48 bits of them last until 2112
  uint16_t drawn;
  if (syscall(SYS_getrandom, &drawn, sizeof drawn, GRND_NONBLOCK) != sizeof drawn) return false;
  const auto time = static_cast<uint64_t>(nanoseconds(CLOCK_REALTIME) / kUnit);
  add_suffix(time << kDrawnBits | drawn, home);
  next_search = 0;
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
