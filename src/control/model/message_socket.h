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

struct Received {
  size_t bytes = 0;        // 0: the other end has closed
  bool truncated = false;  // longer than the buffer, or with more descriptors than asked for
  bool lost_fds = false;   // truncated because this process may open no more
  std::vector<UniqueFd> fds;
};

// The kernel passes at most this many descriptors in a message (SCM_MAX_FD).
inline constexpr size_t kMaxScmFds = 253;

// One message, now or not at all (EAGAIN); never raises SIGPIPE.
Result<void> send_message(int socket, ConstBytes message, std::span<const int> fds = {});
// One message, now or not at all (EAGAIN). Descriptors arrive close-on-exec; those beyond `max_fds` are
// closed by the kernel. REQUIRES: max_fds <= kMaxScmFds
Result<Received> receive_message(int socket, Bytes buffer, size_t max_fds = protocol::kMaxMessageFds);
// The same, but leaves the message where it is, and its descriptors with it.
Result<Received> peek_message(int socket, Bytes buffer, size_t max_fds = protocol::kMaxMessageFds);
// Receives, but waits as the socket says (O_NONBLOCK, SO_RCVTIMEO: EAGAIN when the time is over).
Result<Received> wait_for_message(int socket, Bytes buffer, size_t max_fds = protocol::kMaxMessageFds);

// Waits until poll(2) says one of `events` of the descriptor. False: the deadline came first.
bool wait_until_ready(int fd, short events, TimePoint deadline);

// Where an agent listens.
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
