// SPDX-License-Identifier: Apache-2.0
// NETLINK_RDMA sockets, on which programs such as iproute2's `rdma` ask the kernel about RDMA devices.
//
// If there is an agent's directory, such a socket becomes a NETLINK_USERSOCK socket, which carries messages
// between processes. Messages that the program sends to the kernel go to a helper process, which responds.
// All else is left to the kernel: bind, getsockname, poll, receiving, options, dup, close. So this library
// keeps no state about descriptors, and intercepts only three calls that all programs make. In a program
// without such a socket, an intercepted call costs one load and one comparison more.
#include <cerrno>
#include <cstdint>
#include <ctime>

#include <linux/netlink.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/interpose.h"
#include "base/paths/state_path.h"
#include "preload/sysfs/errno_keeper.h"
#include "preload/sysfs/netlink_helper.h"
#include "preload/sysfs/shown_path.h"

namespace verbena::sysfs {
namespace {

// Whether a program sends to the kernel on a socket that we replaced. The kernel accepts no messages on
// NETLINK_USERSOCK sockets, so such a message must be for the helper. The arguments are examined only once
// the program has opened a NETLINK_RDMA socket: until then not even an invalid pointer is followed.
[[gnu::noinline]] bool is_to_helper(int socket, const void* address, socklen_t size) {
  if (address == nullptr || size < sizeof(sockaddr_nl)) return false;
  const auto* const to = static_cast<const sockaddr_nl*>(address);
  if (to->nl_family != AF_NETLINK || to->nl_pid != 0 || to->nl_groups != 0) return false;
  const ErrnoKeeper keeper;
  int protocol = -1;
  socklen_t protocol_size = sizeof protocol;
  return getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &protocol_size) == 0 &&
         protocol == NETLINK_USERSOCK;
}

bool has_helper() {
  return __builtin_expect(netlink_helper_port() != 0, 0);
}

// The maximum wait for earlier responses. The kernel responds at once, the helper a moment later. Its
// response to a socket that was closed may reach the next socket with the same port. So each new socket first
// waits for such responses and discards them, and so it discards messages that others wrote before it was
// connected.
constexpr int kPatienceMs = 10'000;

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// Only the helper sees the number: others cannot answer before it does.
uint32_t drawn_sequence() {
  uint32_t sequence = 0;
  return getrandom(&sequence, sizeof sequence, GRND_NONBLOCK) == sizeof sequence ? sequence : 0;
}

// Discards earlier responses: sends a message that does nothing, and waits for its acknowledgement. The
// helper responds in order.
bool wait_for_former_answers(int socket, const sockaddr_nl& helper) {
  const uint32_t sequence = drawn_sequence();
  const nlmsghdr question{.nlmsg_len = NLMSG_HDRLEN,
                          .nlmsg_type = NLMSG_NOOP,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
                          .nlmsg_seq = sequence,
                          .nlmsg_pid = 0};
  if (syscall(SYS_sendto, socket, &question, sizeof question, 0, &helper, sizeof helper) < 0) return false;
  const int64_t end = now_ms() + kPatienceMs;
  for (;;) {
    nlmsghdr message{};
    sockaddr_nl from{};
    socklen_t from_size = sizeof from;
    const ssize_t size = recvfrom(socket, &message, sizeof message, MSG_DONTWAIT,
                                  reinterpret_cast<sockaddr*>(&from), &from_size);
    const bool is_answer = size >= static_cast<ssize_t>(sizeof message) &&
                           message.nlmsg_type == NLMSG_ERROR && message.nlmsg_seq == sequence &&
                           from.nl_pid == helper.nl_pid;
    if (is_answer) return true;
    const int64_t left = end - now_ms();
    if (left <= 0) {
      errno = ETIMEDOUT;
      return false;
    }
    if (size >= 0 || errno == EINTR || errno == ENOBUFS) continue;
    if (errno != EAGAIN) return false;
    pollfd wait{.fd = socket, .events = POLLIN, .revents = 0};
    poll(&wait, 1, static_cast<int>(left));
  }
}

// Connects the socket to the helper: it then accepts messages only from the helper, not from any process.
bool connect_to(int socket, const sockaddr_nl& helper) {
  sockaddr_nl peer{};
  socklen_t size = sizeof peer;
  const bool has_peer = getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
  if (has_peer && peer.nl_pid == helper.nl_pid) return true;
  return connect(socket, reinterpret_cast<const sockaddr*>(&helper), sizeof helper) == 0 &&
         wait_for_former_answers(socket, helper);
}

// Calls function(address), which sends to the helper's address. Starts another helper if it is gone.
template <class Function>
ssize_t send_to_helper(int socket, Function function) {
  uint32_t gone = 0;
  for (bool is_second = false;; is_second = true) {
    sockaddr_nl helper{};
    helper.nl_family = AF_NETLINK;
    helper.nl_pid = start_netlink_helper(gone);
    if (helper.nl_pid == 0) {
      errno = ECONNREFUSED;
      return -1;
    }
    const ssize_t sent = connect_to(socket, helper) ? function(helper) : -1;
    if (sent >= 0 || errno != ECONNREFUSED || is_second) return sent;
    gone = helper.nl_pid;  // it has ended just now
  }
}

}  // namespace

INTERPOSE(int, socket, (int domain, int type, int protocol)) {
  if (__builtin_expect(domain == AF_NETLINK && protocol == NETLINK_RDMA, 0)) {
    const bool has_agent = paths::find_state_path(chosen_directory()).valid();
    if (has_agent && start_netlink_helper(0) != 0) {
      const int ours = next_socket(domain, type, NETLINK_USERSOCK);
      if (ours >= 0) return ours;
    }
  }
  return next_socket(domain, type, protocol);
}

INTERPOSE(ssize_t, sendto,
          (int socket, const void* data, size_t size, int flags, const void* address,
           socklen_t address_size)) {
  if (has_helper() && is_to_helper(socket, address, address_size)) {
    return send_to_helper(socket, [&](const sockaddr_nl& helper) {
      return next_sendto(socket, data, size, flags, &helper, sizeof helper);
    });
  }
  return next_sendto(socket, data, size, flags, address, address_size);
}

INTERPOSE(ssize_t, sendmsg, (int socket, const msghdr* message, int flags)) {
  if (has_helper() && message != nullptr && is_to_helper(socket, message->msg_name, message->msg_namelen)) {
    return send_to_helper(socket, [&](const sockaddr_nl& helper) {
      msghdr addressed = *message;
      addressed.msg_name = const_cast<sockaddr_nl*>(&helper);
      return next_sendmsg(socket, &addressed, flags);
    });
  }
  return next_sendmsg(socket, message, flags);
}

}  // namespace verbena::sysfs
