// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/bytes.h"
#include "base/unique_fd.h"
#include "control/client/client.h"
#include "control/protocol/messages.h"
#include "wire/roce/packet.h"
#include "wire/roce/qpn.h"

namespace verbena::test {

// Sends a datagram over loopback whose BTH names a QP of this slot. Returns whether it was sent.
inline bool send_to_slot(uint32_t slot, uint32_t tag) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  std::array<uint8_t, 16> packet{};
  store_be24(&packet[5], roce::Qpn::in_slot(slot, 7).value());
  store_be(&packet[12], tag);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(roce::kUdpPort);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const ssize_t sent =
      ::sendto(socket.get(), packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to);
  return sent == static_cast<ssize_t>(packet.size());
}

// Returns the tags of all forwarded datagrams; waits for the first.
inline std::vector<uint32_t> forwarded_tags(int receiver, int patience_ms = 2000) {
  std::vector<uint32_t> tags;
  pollfd readable{receiver, POLLIN, 0};
  ::poll(&readable, 1, patience_ms);
  std::array<uint8_t, sizeof(protocol::ForwardedDatagram) + 16> message{};
  while (::recv(receiver, message.data(), message.size(), MSG_DONTWAIT) ==
         static_cast<ssize_t>(message.size())) {
    tags.push_back(load_be<uint32_t>(&message[sizeof(protocol::ForwardedDatagram) + 12]));
  }
  return tags;
}

// Returns the tags of all datagrams that have arrived. Loopback usually delivers before sendto() returns, but
// on a busy machine it may take a little longer, so this waits for the first.
inline std::vector<uint32_t> received_tags(const control::Slot& slot) {
  if (slot.is_forwarded) return forwarded_tags(slot.is_forwarded.get());
  std::vector<uint32_t> tags;
  pollfd readable{slot.socket.get(), POLLIN, 0};
  ::poll(&readable, 1, 2000);
  std::array<uint8_t, 16> packet{};
  while (::recv(slot.socket.get(), packet.data(), packet.size(), MSG_DONTWAIT) == 16) {
    tags.push_back(load_be<uint32_t>(&packet[12]));
  }
  return tags;
}

}  // namespace verbena::test
