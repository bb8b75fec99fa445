// SPDX-License-Identifier: Apache-2.0
#include "base/paths/users.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/paths/root_only.h"
#include "base/paths/state_path.h"
#include "base/same_file.h"
#include "base/socket_option.h"

namespace verbena::paths {
namespace {

constexpr uid_t kNone = static_cast<uid_t>(-1);
constexpr unsigned long long kAllUsers = 4294967295;

// Reads a file of /proc by bare system calls, since the C library's functions are interposed. False if it
// cannot be read.
bool read_proc(const char* path, char* text, size_t room, size_t& size) {
  const auto fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const auto bytes = syscall(SYS_read, fd, text, room);
  syscall(SYS_close, fd);
  size = bytes > 0 ? static_cast<size_t>(bytes) : 0;
  return bytes >= 0;
}

// The overflow user ID, which the kernel shows for unmapped users (user_namespaces(7)).
uid_t overflow_user() {
  static std::atomic<uid_t> known{kNone};
  uid_t user = known.load(std::memory_order_relaxed);
  if (user != kNone) return user;
  char text[16];
  size_t size = 0;
  user = 0;
  if (read_proc("/proc/sys/kernel/overflowuid", text, sizeof text, size)) {
    for (size_t at = 0; at < size && text[at] >= '0' && text[at] <= '9'; ++at) {
      user = user * 10 + static_cast<uid_t>(text[at] - '0');
    }
  }
  if (user == 0) user = 65534;  // the kernel's default (DEFAULT_OVERFLOWUID)
  known.store(user, std::memory_order_relaxed);
  return user;
}

// A line of /proc/PID/uid_map.
struct Extent {
  unsigned long long inside = 0, outside = 0, count = 0;
};

// The UID map of this process's user namespace.
class UidMap {
 public:
  // Reads up to 1024 bytes; a map has at most 340 lines. Lines beyond that belong to namespaces with many
  // users, where users are mapped anyway. The buffer is small since the preload library runs on small stacks.
  UidMap() { is_known_ = read_proc("/proc/self/uid_map", text_, sizeof text_, size_); }

  // Whether every user has a mapping. True if the map cannot be read: without /proc nothing is known of a
  // namespace.
  bool has_all() const {
    Extent extent;
    size_t at = 0;
    return !is_known_ || (next(at, extent) && extent.count >= kAllUsers);
  }

  // The ID outside the namespace. kNone if `inside` is not mapped.
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

  char text_[1024];
  size_t size_ = 0;  // 0: no user is mapped
  bool is_known_ = false;
};

bool shares_user_namespace(pid_t process) {
  PathText path("/proc/");
  path.add_number(static_cast<unsigned long long>(process)).add("/ns/user");
  struct stat theirs, ours;
  return stat(path.c_str(), &theirs) == 0 && stat("/proc/self/ns/user", &ours) == 0 &&
         is_same_file(theirs, ours);
}

// Whether the process at the other end lives, so that its pid is not reused. Assumed true if the kernel lacks
// SO_PEERPIDFD.
bool still_lives(int socket) {
  int pidfd = -1;
  socklen_t length = sizeof pidfd;
  if (socket < 0) return true;
  if (syscall(SYS_getsockopt, socket, SOL_SOCKET, kPeerPidfd, &pidfd, &length) != 0)
    return errno == ENOPROTOOPT;
  const bool lives = syscall(SYS_pidfd_send_signal, pidfd, 0, nullptr, 0) == 0;
  syscall(SYS_close, pidfd);
  return lives;
}

// The order matters: the process is found alive last, so the pid was its own when its namespace was read.
bool is_in_our_user_namespace(const PeerProcess& peer) {
  return peer.pid > 0 && shares_user_namespace(peer.pid) && kill(peer.pid, 0) == 0 &&
         still_lives(peer.socket);
}

bool is_safe(const char* directory) {
  struct stat status;
  return lstat(directory, &status) == 0 && S_ISDIR(status.st_mode) &&
         (only_written_by(0, status) || only_written_by(overflow_user(), status));
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
  return is_ambiguous(shown) ? kNone : shown;
}

bool is_ambiguous(uid_t shown) {
  return shown == overflow_user() && !UidMap().has_all();
}

bool is_own_users(const PeerProcess& peer) {
  return peer.shown == geteuid() && has_number(peer);
}

bool has_number(const PeerProcess& peer) {
  return !is_ambiguous(peer.shown) || is_in_our_user_namespace(peer);
}

bool is_unmapped_roots(const char* directory) {
  struct stat status;
  if (lstat(directory, &status) != 0 || status.st_uid != overflow_user() || UidMap().has_all()) return false;
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
