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
  size_t bytes = 0;        // 0: the other end has closed
  bool truncated = false;  // longer than the buffer, or with more descriptors than asked for
  bool lost_fds = false;   // truncated because this process may open no more
  std::vector<UniqueFd> fds;
};

// The kernel's limit of descriptors in one message (SCM_MAX_FD).
inline constexpr size_t kMaxScmFds = 253;

// Sends one message without blocking (EAGAIN); never raises SIGPIPE.
Result<void> send_message(int socket, ConstBytes message, std::span<const int> fds = {});
// Receives one message without blocking (EAGAIN). Descriptors arrive close-on-exec; the kernel closes those
// beyond `max_fds`. REQUIRES: max_fds <= kMaxScmFds
Result<Received> receive_message(int socket, Bytes buffer, size_t max_fds = protocol::kMaxMessageFds);
// Like receive_message(), but leaves the message and its descriptors in the socket.
Result<Received> peek_message(int socket, Bytes buffer, size_t max_fds = protocol::kMaxMessageFds);
// Like receive_message(), but waits as the socket's settings say (O_NONBLOCK; SO_RCVTIMEO: EAGAIN after that
// time).
Result<Received> wait_for_message(int socket, Bytes buffer, size_t max_fds = protocol::kMaxMessageFds);

// Waits until poll(2) reports one of `events` for the descriptor. False: the deadline came first.
bool wait_until_ready(int fd, short events, TimePoint deadline);

// The address at which an agent listens.
struct AgentAddress {
  // The abstract name of the agent of `uid`.
  explicit AgentAddress(uid_t uid);
  // A socket file. REQUIRES: fits(path)
  explicit AgentAddress(std::string_view path);
  static bool fits(std::string_view path) { return path.size() < sizeof(sockaddr_un::sun_path); }
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr_un storage{};
  socklen_t length = 0;
};

Result<ucred> peer_credentials(int socket);

}  // namespace verbena::control
