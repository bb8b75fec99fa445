// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

#include "adapter/shm/layout.h"
#include "base/bytes.h"
#include "base/unique_fd.h"
#include "control/model/message_socket.h"

namespace verbena::engine {

// A handshake message between the two ends of a channel, as the peer sends it (adapter/shm/local_line.cc). A
// library that leaves `takes_bells` 0 is older and knows no kBell message.
struct Said {
  uint32_t magic = shm::kChannelMagic;
  uint32_t version = shm::kLayoutVersion;
  uint32_t type = 0;
  uint32_t takes_bells = 0;
};
// An offer or its reply, with the fields that newer libraries add.
struct SaidWithSight {
  Said said;
  uint32_t sends_copies = 1;
  uint32_t sees = 0;  // value of sight_of_processes()
};
inline constexpr uint32_t kOffer = 1;
inline constexpr uint32_t kAccept = 2;
inline constexpr uint32_t kPresent = 3;
inline constexpr uint32_t kBell = 4;
inline constexpr uint32_t kAskForGroup = 5;
inline constexpr uint32_t kHalf = 8;

inline constexpr uid_t kAnotherUser = 65'534;
// Returns whether this process may say that it is another user.
inline bool may_be_anyone() {
  return ::geteuid() == 0;
}
// Sends a message with a file in the name of a user, and of a process. Returns false on failure.
inline bool say_as(uid_t user, int socket, ConstBytes bytes, int with = -1, pid_t process = ::getpid()) {
  struct Control {
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(ucred))> credentials{};
    std::array<std::byte, CMSG_SPACE(sizeof(int))> file{};
  } control;
  const auto write = [](auto& to, int type, const auto& value) {
    const cmsghdr head{.cmsg_len = CMSG_LEN(sizeof value), .cmsg_level = SOL_SOCKET, .cmsg_type = type};
    std::memcpy(to.data(), &head, sizeof head);
    std::memcpy(to.data() + CMSG_LEN(0), &value, sizeof value);
  };
  write(control.credentials, SCM_CREDENTIALS, ucred{process, user, static_cast<gid_t>(user)});
  write(control.file, SCM_RIGHTS, with);
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = with >= 0 ? sizeof control : sizeof control.credentials;
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) > 0;
}

struct Heard {
  size_t bytes = 0;  // 0: the other end has closed the socket
  UniqueFd file;
};
// Receives the next message that our end has sent; it is trusted. Nullopt if there is none.
inline std::optional<Heard> hear_from(int socket, Bytes buffer) {
  auto received = control::receive_message(socket, buffer, 1);
  if (!received && received.error().code == EAGAIN) return std::nullopt;
  if (!received) return Heard{};
  return Heard{received->bytes, received->fds.empty() ? UniqueFd() : std::move(received->fds[0])};
}

}  // namespace verbena::engine
