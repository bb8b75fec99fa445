// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>

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
inline constexpr uint32_t kHalf = 7;

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
