// SPDX-License-Identifier: Apache-2.0
#include "paths/users.h"

#include <csignal>
#include <cstddef>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "paths/path_text.h"

namespace verbena::paths {
namespace {

// The kernel shows this for a user without a number (/proc/sys/kernel/overflowuid, which nobody changes).
constexpr uid_t kOverflow = 65534;
constexpr uid_t kNone = static_cast<uid_t>(-1);
constexpr unsigned long long kAllUsers = 4294967295;

// A line of /proc/PID/uid_map.
struct Extent {
  unsigned long long inside = 0, outside = 0, count = 0;
};

// The map of this process's user namespace. Straight to the kernel, not through functions that are
// interposed.
class UidMap {
 public:
  UidMap() {
    const auto fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    // 340 lines are possible. Those that do not fit are of a namespace with many users, who have numbers.
    const auto bytes = syscall(SYS_read, fd, text_, sizeof text_);
    syscall(SYS_close, fd);
    is_known_ = bytes >= 0;
    if (bytes > 0) size_ = static_cast<size_t>(bytes);
  }

  // Every user has a number. So it is where the map cannot be read: there is no /proc, and nothing is known
  // of a namespace.
  bool has_all() const {
    Extent extent;
    size_t at = 0;
    return !is_known_ || (next(at, extent) && extent.count >= kAllUsers);
  }

  // The number outside. kNone: the user is shown by none of its own.
  uid_t outside(uid_t inside) const {
    Extent extent;
    for (size_t at = 0; next(at, extent);) {
      if (inside >= extent.inside && inside - extent.inside < extent.count) {
        return static_cast<uid_t>(extent.outside + (inside - extent.inside));
      }
    }
    return kNone;
  }

 private:
  bool number(size_t& at, unsigned long long& value) const {
    while (at < size_ && text_[at] == ' ') ++at;
    const size_t first = at;
    for (value = 0; at < size_ && text_[at] >= '0' && text_[at] <= '9'; ++at) {
      value = value * 10 + static_cast<unsigned>(text_[at] - '0');
    }
    return at > first;
  }
  bool next(size_t& at, Extent& extent) const {
    while (at < size_ && text_[at] == '\n') ++at;
    return number(at, extent.inside) && number(at, extent.outside) && number(at, extent.count);
  }

  char text_[4096];
  size_t size_ = 0;  // 0: nobody has a number
  bool is_known_ = false;
};

bool is_safe(const char* directory) {
  struct stat status;
  return lstat(directory, &status) == 0 && S_ISDIR(status.st_mode) &&
         (status.st_uid == 0 || status.st_uid == kOverflow) && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

uid_t own_user() {
  const uid_t own = geteuid();
  if (own != 0) return own;
  struct stat run;
  if (lstat("/run", &run) == 0 && run.st_uid == 0) return 0;
  const UidMap map;
  if (map.has_all()) return 0;
  const uid_t outside = map.outside(0);
  return outside == kNone ? 0 : outside;
}

uid_t shown_as(uid_t user) {
  const uid_t shown = user == own_user() ? geteuid() : user;
  return is_unmapped(shown) ? kNone : shown;
}

bool is_unmapped(uid_t shown) {
  if (shown != kOverflow) return false;
  const UidMap map;
  return !map.has_all() && map.outside(shown) == kNone;
}

bool is_own_users(pid_t process, uid_t shown) {
  return shown == geteuid() && (!is_unmapped(shown) || (process > 0 && kill(process, 0) == 0));
}

bool is_unmapped_roots(const char* directory) {
  struct stat status;
  if (lstat(directory, &status) != 0 || status.st_uid != kOverflow || UidMap().has_all()) return false;
  PathText path{std::string_view(directory, std::strlen(directory))};
  if (!path.valid() || directory[0] != '/') return false;
  while (is_safe(path.c_str())) {
    if (path.view().size() <= 1) return true;
    const size_t slash = path.view().rfind('/');
    path.shorten(slash == 0 ? 1 : slash);
  }
  return false;
}

}  // namespace verbena::paths
