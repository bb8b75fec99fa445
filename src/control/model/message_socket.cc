// SPDX-License-Identifier: Apache-2.0
#include "control/model/message_socket.h"

#include <cstdio>

#include <poll.h>

namespace verbena::control {
namespace {

// Room for the maximum of descriptors that one message can carry, aligned as a cmsghdr must be.
union ControlBuffer {
  cmsghdr alignment;
  char bytes[CMSG_SPACE(kMaxScmFds * sizeof(int))];
};

Result<Received> receive(int socket, Bytes buffer, size_t max_fds, int flags) {
  iovec data{buffer.data(), buffer.size()};
  ControlBuffer control;
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = max_fds > 0 ? control.bytes : nullptr;
  // CMSG_LEN instead of CMSG_SPACE, whose padding would have room for one more descriptor than asked for.
  header.msg_controllen = max_fds > 0 ? CMSG_LEN(std::min(max_fds, kMaxScmFds) * sizeof(int)) : 0;
  Received received;
  received.fds.reserve(max_fds);  // allocates now: if it failed later, received descriptors would stay open
  ssize_t bytes;
  do {
    bytes = ::syscall(SYS_recvmsg, socket, &header, flags | MSG_CMSG_CLOEXEC);
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0) return fail(errno);

  received.bytes = static_cast<size_t>(bytes);
  received.truncated = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  for (cmsghdr* cmsg = CMSG_FIRSTHDR(&header); cmsg != nullptr; cmsg = CMSG_NXTHDR(&header, cmsg)) {
    if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof fd, sizeof fd);
      received.fds.emplace_back(fd);
    }
  }
  received.lost_fds = (header.msg_flags & MSG_CTRUNC) != 0 && received.fds.size() < max_fds;
  return received;
}

}  // namespace

Result<SocketPair> make_socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return fail(errno);
  return SocketPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Result<void> send_message(int socket, ConstBytes message, std::span<const int> fds) {
  iovec data{const_cast<std::byte*>(message.data()), message.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  ControlBuffer control;
  if (!fds.empty()) {
    if (fds.size() > kMaxScmFds) return fail(EINVAL);
    header.msg_control = control.bytes;
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    std::memset(control.bytes, 0, header.msg_controllen);
    cmsghdr* cmsg = CMSG_FIRSTHDR(&header);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(cmsg), fds.data(), fds.size_bytes());
  }
  for (;;) {
    // Bypasses the C library, here and below: its calls are cancellation points, and the caller may hold
    // locks.
    if (::syscall(SYS_sendmsg, socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return {};
    if (errno != EINTR) return fail(errno);
  }
}

Result<Received> receive_message(int socket, Bytes buffer, size_t max_fds) {
  return receive(socket, buffer, max_fds, MSG_DONTWAIT);
}

Result<Received> peek_message(int socket, Bytes buffer, size_t max_fds) {
  return receive(socket, buffer, max_fds, MSG_DONTWAIT | MSG_PEEK);
}

Result<Received> wait_for_message(int socket, Bytes buffer, size_t max_fds) {
  return receive(socket, buffer, max_fds, 0);
}

Result<Received> wait_to_peek(int socket, Bytes buffer, size_t max_fds) {
  return receive(socket, buffer, max_fds, MSG_PEEK);
}

bool wait_until_ready(int fd, short events, TimePoint deadline) {
  for (;;) {
    const Duration left = deadline - MonotonicClock::now();
    if (left <= Duration::zero()) return false;
    pollfd entry{fd, events, 0};
    timespec patience{left.count() / 1'000'000'000, left.count() % 1'000'000'000};  // the kernel changes it
    if (::syscall(SYS_ppoll, &entry, 1, &patience, nullptr, 0) > 0) return true;
  }
}

AgentAddress::AgentAddress(uid_t uid) {
  storage.sun_family = AF_UNIX;
  const int letters = std::snprintf(storage.sun_path + 1, sizeof storage.sun_path - 1, "verbena/%u", uid);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1) + static_cast<socklen_t>(letters);
}

AgentAddress::AgentAddress(std::string_view path) {
  storage.sun_family = AF_UNIX;
  path.copy(storage.sun_path, sizeof storage.sun_path - 1);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
}

Result<ucred> peer_credentials(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return fail(errno);
  return credentials;
}

}  // namespace verbena::control
