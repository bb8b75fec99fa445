// SPDX-License-Identifier: Apache-2.0
// Answers requests that a program under `verbena run` sends on NETLINK_RDMA sockets. The preload
// (preload/sysfs/rdma_netlink.cc) starts this process when a program opens its first such socket. It ends
// with that program. Not for users: descriptor 3 is a NETLINK_USERSOCK socket, to which the program's sockets
// send; descriptor 4 is a pidfd of the program.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <span>

#include <linux/netlink.h>
#include <poll.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/paths/users.h"
#include "base/pidfd.h"
#include "commands/rdma/agent_system.h"
#include "preload/netlink/service.h"

namespace {

using verbena::rdma_netlink::Bytes;
using verbena::rdma_netlink::Service;

constexpr int kSocket = 3;
constexpr int kProgram = 4;
// Limit of a request in bytes; requests have only a few attributes.
constexpr size_t kLongestRequest = 32 << 10;
// Limit for sending to a program that does not read. After that the rest of an answer is dropped.
constexpr timeval kPatience{.tv_sec = 10, .tv_usec = 0};

struct Received {
  size_t size = 0;
  uint32_t port = 0;
  bool is_answered = false;
};

// Whether to answer the sender of a request: a process of the program's user. A set-user-ID program has the
// real user's number here, and rights that this user's other processes lack. So its helper, which has these
// rights, too, answers only the program itself.
bool is_answered(const ucred& sender) {
  static const bool has_rights_of_another = ::getauxval(AT_SECURE) != 0;
  const pid_t program = has_rights_of_another ? verbena::pid_of(kProgram) : 0;
  if (has_rights_of_another && (program == 0 || sender.pid != program)) return false;
  return sender.uid == ::getuid() && verbena::paths::has_number({.pid = sender.pid, .shown = sender.uid});
}

// Receives a datagram without blocking; nullopt if there is none. A datagram that is too long has size 0, one
// without a sender's address has port 0.
std::optional<Received> receive(std::span<std::byte> buffer) {
  sockaddr_nl from{};
  iovec place{.iov_base = buffer.data(), .iov_len = buffer.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(ucred))> control{};
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = ::recvmsg(kSocket, &message, MSG_DONTWAIT);
  if (size < 0) return std::nullopt;
  Received received{.port = from.nl_pid};
  if ((message.msg_flags & MSG_TRUNC) == 0) received.size = static_cast<size_t>(size);
  for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender;
    std::memcpy(&sender, CMSG_DATA(one), sizeof sender);
    received.is_answered = is_answered(sender);
  }
  return received;
}

// Sends the datagrams; blocks up to kPatience for each. Stops at an error, such as that the destination
// socket is gone.
void send(const std::vector<Bytes>& datagrams, uint32_t port) {
  sockaddr_nl to{};
  to.nl_family = AF_NETLINK;
  to.nl_pid = port;
  for (const Bytes& datagram : datagrams) {
    ssize_t sent;
    do {
      sent =
          ::sendto(kSocket, datagram.data(), datagram.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) return;
  }
}

// Answers all pending requests of this user; other users of this host can send to the socket, too. Connects
// to the agent for each request, since another agent may have replaced the last one.
void answer_all(std::span<std::byte> buffer) {
  while (const auto received = receive(buffer)) {
    if (!received->is_answered || received->port == 0) continue;
    verbena::commands::rdma::AgentSystem system;
    send(Service(system).answer(buffer.first(received->size), received->port), received->port);
  }
}

int serve() {
  const int on = 1;
  if (::setsockopt(kSocket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      ::setsockopt(kSocket, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience) != 0) {
    std::fputs(
        "verbena-rdma-netlink: programs under `verbena run` start it; there is nothing to do without one\n",
        stderr);
    return 2;
  }
  std::vector<std::byte> buffer(kLongestRequest);
  for (;;) {
    std::array<pollfd, 2> wait{{{kSocket, POLLIN, 0}, {kProgram, POLLIN, 0}}};
    if (::poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR) return 1;
    answer_all(buffer);
    if (wait[1].revents != 0) return 0;
  }
}

}  // namespace

int main() {
  try {
    return serve();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "verbena-rdma-netlink: %s\n", error.what());
    return 1;
  }
}
