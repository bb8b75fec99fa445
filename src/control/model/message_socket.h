// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <sys/socket.h>
#include <sys/un.h>

#include "base/bytes.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "control/protocol/messages.h"

namespace verbena::control {

// A received message, apart from its bytes.
struct Received {
  size_t bytes = 0;        // 0 if the other end has closed
  bool truncated = false;  // the message is longer than the buffer, or has more than `max_fds` descriptors
  bool lost_fds = false;   // truncated because this process may open no more descriptors
  std::vector<UniqueFd> fds;
};

// The kernel's limit of descriptors in one message (SCM_MAX_FD).
inline constexpr size_t kMaxScmFds = 253;

// A pair of connected SOCK_SEQPACKET sockets, close-on-exec and non-blocking.
struct SocketPair {
  UniqueFd ours;
  UniqueFd theirs;
};
Result<SocketPair> make_socket_pair();

// Sends one message with copies of the descriptors `fds`. Never blocks: EAGAIN if the socket is full. EPIPE,
// without SIGPIPE, if the other end is closed. EINVAL for more than kMaxScmFds descriptors.
Result<void> send_message(int socket, ConstBytes message, std::span<const int> fds = {});
// Receives one message. Never blocks: EAGAIN if there is none. Received descriptors are close-on-exec; the
// kernel closes those beyond `max_fds`. REQUIRES: max_fds <= kMaxScmFds
Result<Received> receive_message(int socket, Bytes buffer, size_t max_fds = protocol::kMaxMessageFds);
// Like receive_message(), but leaves the message in the socket for the next call. The returned descriptors
// are copies.
Result<Received> peek_message(int socket, Bytes buffer, size_t max_fds = protocol::kMaxMessageFds);
// Like receive_message(), but waits for a message unless the socket is O_NONBLOCK. If the socket has a
// receive timeout (SO_RCVTIMEO), EAGAIN after that time.
Result<Received> wait_for_message(int socket, Bytes buffer, size_t max_fds = protocol::kMaxMessageFds);

// Like wait_for_message(), but leaves the message in the socket, as peek_message() does.
Result<Received> wait_to_peek(int socket, Bytes buffer, size_t max_fds = protocol::kMaxMessageFds);

// Waits until poll(2) reports one of `events`, an error or a hang-up, and returns true. Returns false at the
// deadline.
bool wait_until_ready(int fd, short events, TimePoint deadline);

// The Unix socket address at which an agent listens.
struct AgentAddress {
  // The abstract name of the agent of user `uid`.
  explicit AgentAddress(uid_t uid);
  // The path of an agent's socket file. REQUIRES: fits(path)
  explicit AgentAddress(std::string_view path);
  // Returns whether the path is short enough for a socket address.
  static bool fits(std::string_view path) { return path.size() < sizeof(sockaddr_un::sun_path); }
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr_un storage{};
  socklen_t length = 0;
};

// Returns pid, user and group of the process at the other end when it connected (SO_PEERCRED). The pid is 0
// if this process's pid namespace does not show the process.
Result<ucred> peer_credentials(int socket);

}  // namespace verbena::control
