// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

// Socket calls that bypass the C library. The library's calls are cancellation points: a thread that is
// cancelled inside a verb would leave the shard's lock held. In a process with several threads, the library's
// calls also cost 20 to 40 ns more each.
namespace verbena::net::system_calls {

inline ssize_t sendto(int fd, const void* data, size_t bytes, int flags, const sockaddr* to,
                      socklen_t length) {
  return syscall(SYS_sendto, fd, data, bytes, flags, to, length);
}
inline ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return syscall(SYS_sendmsg, fd, message, flags);
}
inline int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  return static_cast<int>(syscall(SYS_sendmmsg, fd, messages, count, flags));
}
inline ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return syscall(SYS_recvmsg, fd, message, flags);
}
inline int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  return static_cast<int>(syscall(SYS_recvmmsg, fd, messages, count, flags, nullptr));
}
inline ssize_t vmsplice(int pipe, const iovec* pieces, size_t count, unsigned flags) {
  return syscall(SYS_vmsplice, pipe, pieces, count, flags);
}
inline ssize_t splice(int pipe, int to, size_t bytes, unsigned flags) {
  return syscall(SYS_splice, pipe, nullptr, to, nullptr, bytes, flags);
}

}  // namespace verbena::net::system_calls
