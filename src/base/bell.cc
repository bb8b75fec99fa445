// SPDX-License-Identifier: Apache-2.0
#include "base/bell.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace verbena {
namespace {

// Past the C library, whose calls are cancellation points: the caller may hold locks.
ssize_t read_now(int fd) {
  uint64_t rings;
  const iovec into{&rings, sizeof rings};
  return ::syscall(SYS_preadv2, fd, &into, 1, -1L, -1L, RWF_NOWAIT);
}

bool is_eventfd(int fd) {
  std::array<char, 32> path{};
  std::array<char, 64> target{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(path.data(), target.data(), target.size());
  return length > 0 && std::string_view(target.data(), static_cast<size_t>(length)) == "anon_inode:[eventfd]";
}

}  // namespace

Result<Bell> Bell::make() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC));
  if (!fd) return fail(errno);
  if (read_now(fd.get()) >= 0 || errno != EAGAIN) return fail(EOPNOTSUPP);
  return Bell(std::move(fd));
}

Result<Bell> Bell::of_other(UniqueFd fd) {
  if (!is_eventfd(fd.get())) return fail(EINVAL);
  return Bell(std::move(fd));
}

void Bell::ring() const {
  const uint64_t one = 1;
  ::syscall(SYS_write, fd_.get(), &one, sizeof one);
}

Result<void> Bell::await() const {
  uint64_t rings;
  if (::read(fd_.get(), &rings, sizeof rings) < 0) return fail(errno);
  return {};
}

bool Bell::hear() const {
  return read_now(fd_.get()) > 0;
}

}  // namespace verbena
