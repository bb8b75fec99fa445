// SPDX-License-Identifier: Apache-2.0
// Calls of rsocket(7) that there are no sockets for yet.
#include <cerrno>
#include <cstdarg>

#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "rdmacm/abi.h"

namespace {

int unsupported() {
  errno = EOPNOTSUPP;
  return -1;
}

}  // namespace

extern "C" {
int repoll_create(int flags);
int repoll_ctl(int set, int operation, int fd, epoll_event* event);
int repoll_wait(int set, epoll_event* events, int capacity, int timeout);
}

VERBENA_ABI int rsocket(int, int, int) {
  return unsupported();
}
VERBENA_ABI int rbind(int, const sockaddr*, socklen_t) {
  return unsupported();
}
VERBENA_ABI int rlisten(int, int) {
  return unsupported();
}
VERBENA_ABI int raccept(int, sockaddr*, socklen_t*) {
  return unsupported();
}
VERBENA_ABI int rconnect(int, const sockaddr*, socklen_t) {
  return unsupported();
}
VERBENA_ABI int rshutdown(int, int) {
  return unsupported();
}
VERBENA_ABI int rclose(int) {
  return unsupported();
}
VERBENA_ABI ssize_t rrecv(int, void*, size_t, int) {
  return unsupported();
}
VERBENA_ABI ssize_t rrecvfrom(int, void*, size_t, int, sockaddr*, socklen_t*) {
  return unsupported();
}
VERBENA_ABI ssize_t rrecvmsg(int, msghdr*, int) {
  return unsupported();
}
VERBENA_ABI ssize_t rsend(int, const void*, size_t, int) {
  return unsupported();
}
VERBENA_ABI ssize_t rsendto(int, const void*, size_t, int, const sockaddr*, socklen_t) {
  return unsupported();
}
VERBENA_ABI ssize_t rsendmsg(int, const msghdr*, int) {
  return unsupported();
}
VERBENA_ABI ssize_t rread(int, void*, size_t) {
  return unsupported();
}
VERBENA_ABI ssize_t rreadv(int, const iovec*, int) {
  return unsupported();
}
VERBENA_ABI ssize_t rwrite(int, const void*, size_t) {
  return unsupported();
}
VERBENA_ABI ssize_t rwritev(int, const iovec*, int) {
  return unsupported();
}
VERBENA_ABI int rpoll(pollfd*, nfds_t, int) {
  return unsupported();
}
VERBENA_ABI int rselect(int, fd_set*, fd_set*, fd_set*, timeval*) {
  return unsupported();
}
VERBENA_ABI int rgetpeername(int, sockaddr*, socklen_t*) {
  return unsupported();
}
VERBENA_ABI int rgetsockname(int, sockaddr*, socklen_t*) {
  return unsupported();
}
VERBENA_ABI int rsetsockopt(int, int, int, const void*, socklen_t) {
  return unsupported();
}
VERBENA_ABI int rgetsockopt(int, int, int, void*, socklen_t*) {
  return unsupported();
}
VERBENA_ABI int rfcntl(int, int, ...) {
  return unsupported();
}
VERBENA_ABI off_t riomap(int, void*, size_t, int, int, off_t) {
  return unsupported();
}
VERBENA_ABI int riounmap(int, void*, size_t) {
  return unsupported();
}
VERBENA_ABI size_t riowrite(int, const void*, size_t, off_t, int) {
  return static_cast<size_t>(unsupported());
}
VERBENA_ABI int repoll_create(int) {
  return unsupported();
}
VERBENA_ABI int repoll_ctl(int, int, int, epoll_event*) {
  return unsupported();
}
VERBENA_ABI int repoll_wait(int, epoll_event*, int, int) {
  return unsupported();
}
