// SPDX-License-Identifier: Apache-2.0
#include "agent/process.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena::agent {
namespace {

#ifdef SO_PEERPIDFD
constexpr int kPeerPidfd = SO_PEERPIDFD;
#else
constexpr int kPeerPidfd = 77;  // asm-generic/socket.h
#endif

}  // namespace

uint64_t start_time_of(pid_t pid) {
  if (pid <= 0) return 0;
  const UniqueFd file(::open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t bytes = file ? ::read(file.get(), text, sizeof text) : 0;
  const std::string_view stat(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  // Field 22; the second, the name in parentheses, may contain anything (proc(5)).
  size_t at = stat.rfind(')');
  for (int field = 2; field < 22 && at != std::string_view::npos; ++field) at = stat.find(' ', at + 1);
  uint64_t ticks = 0;
  if (at != std::string_view::npos) std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), ticks);
  return ticks;
}

UniqueFd watch_process(pid_t pid) {
  if (pid <= 0) return {};
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));  // close-on-exec by itself
}

UniqueFd watch_peer(int socket, pid_t pid) {
  int fd = -1;
  socklen_t length = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &fd, &length) == 0) return UniqueFd(fd);
  return watch_process(pid);
}

}  // namespace verbena::agent
