// SPDX-License-Identifier: Apache-2.0
// Answers what a program under `verbena run` asks on sockets of NETLINK_RDMA. The preload
// (preload/sysfs/rdma_netlink.cc) starts one beside a program that opens the first such socket; it ends with
// that program. It is no command for users: descriptor 3 is the socket of NETLINK_USERSOCK on which the
// program's sockets write to it, 4 a pidfd of the program.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/paths/users.h"
#include "commands/rdma/agent_system.h"
#include "preload/netlink/service.h"

namespace {

using verbena::rdma_netlink::Bytes;
using verbena::rdma_netlink::Service;

constexpr int kSocket = 3;
constexpr int kProgram = 4;
// Requests have a few attributes.
constexpr size_t kLongestRequest = 32 << 10;
// A program that reads nothing of its answer for as long does not get the rest.
constexpr timeval kPatience{.tv_sec = 10, .tv_usec = 0};

struct Received {
  size_t size = 0;
  uint32_t port = 0;
  bool is_own_users = false;
};

// Nothing: no datagram was there. One without a sender's port, or too long, is left out.
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
    received.is_own_users =
        sender.uid == ::getuid() && verbena::paths::has_number({.pid = sender.pid, .shown = sender.uid});
  }
  return received;
}

// Waits while the program reads. What comes for a socket that is gone is dropped.
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

// Anybody on this host may write to the socket, too. The agent is reached each time: in a program that lives
// long, the next question may be for another agent.
void answer_all(std::span<std::byte> buffer) {
  while (const auto received = receive(buffer)) {
    if (!received->is_own_users || received->port == 0) continue;
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
