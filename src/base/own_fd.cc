// SPDX-License-Identifier: Apache-2.0
#include "base/own_fd.h"

#include <utility>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/own_number.h"
#include "base/socket_option.h"

namespace verbena {
namespace {

// Files of eventfd(2), timerfd_create(2) and epoll_create(2) share one inode. They are told apart by a signal
// number (F_SETSIG) that is never used, since these files do not support SIGIO. Each file gets the next of 64
// numbers.
int next_signal() {
  static std::atomic<unsigned> last{0};
  return static_cast<int>(last.fetch_add(1, std::memory_order_relaxed) % 64) + 1;
}

}  // namespace

OwnFd::OwnFd(UniqueFd fd) : OwnFd(std::move(fd), false) {}

OwnFd::OwnFd(UniqueFd fd, bool keeps_number) {
  if (!fd) return;
  if (!keeps_number) fd = with_own_number(std::move(fd));
  mark_ = make_mark(fd.get());
  fd_ = fd.release();
}

OwnFd::Mark OwnFd::make_mark(int fd) {
  struct stat about {};
  if (::fstat(fd, &about) != 0) return {};
  if (S_ISSOCK(about.st_mode)) {
    const Mark mark = read_mark(fd, Mark::kSocket);
    if (mark.kind == Mark::kSocket) return mark;
  }
  if ((about.st_mode & S_IFMT) == 0 && ::fcntl(fd, F_SETSIG, next_signal()) == 0) {
    return read_mark(fd, Mark::kAnonymous);
  }
  return read_mark(fd, Mark::kFile);
}

OwnFd::Mark OwnFd::read_mark(int fd, Mark::Kind kind) {
  if (kind == Mark::kSocket) {
    const auto cookie = get_option<uint64_t>(fd, SOL_SOCKET, SO_COOKIE);  // since Linux 4.12
    return cookie ? Mark{Mark::kSocket, {*cookie}} : Mark();
  }
  if (kind == Mark::kAnonymous) {
    const int signal = ::fcntl(fd, F_GETSIG);
    if (signal <= 0) return {};
    return {Mark::kAnonymous, {static_cast<uint64_t>(signal)}};
  }
  // Must not ask the server of a network file system, which may not answer.
  struct statx about {};
  constexpr unsigned kWanted = STATX_INO;
  if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, kWanted, &about) != 0) return {};
  return {Mark::kFile, {makedev(about.stx_dev_major, about.stx_dev_minor), about.stx_ino}};
}

bool OwnFd::is_ours() const {
  const int fd = get();
  return fd >= 0 && (mark_.kind == Mark::kNone || read_mark(fd, mark_.kind) == mark_);
}

UniqueFd OwnFd::take() {
  const bool is_still_ours = is_ours();
  const int fd = fd_.exchange(-1);
  return UniqueFd(is_still_ours ? fd : -1);
}

void OwnFd::become(const UniqueFd& other) {
  if (is_ours() && ::dup3(other.get(), get(), O_CLOEXEC) >= 0) mark_ = make_mark(get());
}

bool OwnFd::settle() {
  const bool is_still_ours = is_ours();
  if (!is_still_ours) fd_.store(-1, std::memory_order_relaxed);
  return is_still_ours;
}

}  // namespace verbena
