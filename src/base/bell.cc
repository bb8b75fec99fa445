// SPDX-License-Identifier: Apache-2.0
#include "base/bell.h"

#include <cerrno>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/socket_option.h"

namespace verbena {
namespace {

// About the number of wake-ups that a socket holds.
constexpr int kMaxAtOnce = 16;

}  // namespace

Result<Bell> Bell::make() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0) return fail(errno);
  Bell bell{UniqueFd(ends[0]), UniqueFd(ends[1])};
  // The name gives no access: a socket of a pair accepts datagrams from its partner alone.
  if (!bind_to_random_name(bell.ringing_fd())) return fail(errno);
  pass_descriptors(bell.fd(), false);  // to close ones sent with a wake-up could block the woken thread
  return bell;
}

// These conditions make sure that send() with MSG_DONTWAIT cannot block. send() gives a nameless socket a
// name (SO_PASSCRED), and waits for a process that is about to name it, as in a directory on a file system
// that does not answer. None of the three properties can change later.
bool Bell::is_ringing_end(int fd) {
  return get_option<int>(fd, SOL_SOCKET, SO_DOMAIN) == AF_UNIX &&
         get_option<int>(fd, SOL_SOCKET, SO_TYPE) == SOCK_DGRAM && has_name(fd);
}

Result<Bell> Bell::of_other(UniqueFd ringing_end) {
  if (!is_ringing_end(ringing_end.get())) return fail(EINVAL);
  return Bell(UniqueFd(), std::move(ringing_end));
}

// ring() and hear() use bare system calls: the C library's are cancellation points, and the caller may hold
// locks.
bool Bell::ring() const {
  const char ring = 0;
  const long sent =
      ::syscall(SYS_sendto, ringing_end_.get(), &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
  return sent >= 0 || errno == EAGAIN;
}

Result<void> Bell::await() const {
  char ring;
  if (::recv(hearing_end_.get(), &ring, sizeof ring, 0) < 0) return fail(errno);
  return {};
}

bool Bell::hear() const {
  const auto take_one = [this] {
    char ring;
    return ::syscall(SYS_recvfrom, hearing_end_.get(), &ring, sizeof ring, MSG_DONTWAIT, nullptr, nullptr) >=
           0;
  };
  if (!take_one()) return false;
  // Take those that came with it, but not endlessly if a process goes on sending.
  for (int more = 0; more < kMaxAtOnce && take_one(); ++more) {
  }
  return true;
}

}  // namespace verbena
