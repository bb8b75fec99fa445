// SPDX-License-Identifier: Apache-2.0
#include "adapter/xrc/peer.h"

#include <array>

#include "adapter/xrc/peer_messages.h"

namespace verbena::engine {

void Peer::abandon() {
  entry_.forget();
  link_.abandon();
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
  if (received > 0) link_.flush();  // a peer that has written has probably read
  return received;
}

bool Peer::say(std::span<const iovec> pieces) {
  const bool said = link_.send(pieces);
  if (link_.is_lost() || link_.has_waiting()) keeper_.needs_care();
  return said;
}

}  // namespace verbena::engine
