// SPDX-License-Identifier: Apache-2.0
#include "engine/peer.h"

#include <array>

#include <sys/epoll.h>

#include "engine/peer_messages.h"

namespace verbena::engine {

// Taken out by name: a process that has inherited the socket keeps it in the set though we close it.
Peer::~Peer() {
  if (poll_set_ >= 0 && link_.is_open()) ::epoll_ctl(poll_set_, EPOLL_CTL_DEL, link_.fd(), nullptr);
}

bool Peer::announce_in(int poll_set) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = this;
  if (::epoll_ctl(poll_set, EPOLL_CTL_ADD, link_.fd(), &event) != 0) return false;
  poll_set_ = poll_set;
  return true;
}

uint32_t Peer::receive(uint32_t budget) {
  std::array<std::byte, kMaxPeerMessage> buffer;
  uint32_t received = 0;
  while (received < budget) {
    const ConstBytes message = link_.receive(buffer);
    if (message.empty()) break;
    ++received;
    if (!take(message)) link_.lose();
  }
  if (received > 0) link_.flush();  // a peer that writes has read
  return received;
}

bool Peer::say(std::span<const iovec> pieces) {
  const bool said = link_.send(pieces);
  if (link_.is_lost() || link_.has_waiting()) keeper_.needs_care();
  return said;
}

}  // namespace verbena::engine
