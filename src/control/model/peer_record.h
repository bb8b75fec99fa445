// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>

#include "control/protocol/messages.h"
#include "wire/roce/prefix.h"

namespace verbena::control {

// Converts a network to the record that the agent's messages and the link table's file contain.
inline protocol::PeerRecord store_peer(const roce::Prefix& peer) {
  protocol::PeerRecord record{};
  std::copy(peer.network.bytes.begin(), peer.network.bytes.end(), record.network);
  record.bits = peer.bits;
  return record;
}

// Converts a record back to a network. Returns nullopt if the record is not a valid network.
inline std::optional<roce::Prefix> load_peer(const protocol::PeerRecord& record) {
  roce::Prefix peer;
  std::copy(std::begin(record.network), std::end(record.network), peer.network.bytes.begin());
  peer.bits = record.bits;
  const int least = peer.network.is_ipv4() ? roce::Prefix::kIpv4Bits : 0;
  const bool valid =
      peer.bits >= least && peer.bits <= 128 && roce::first_bits(peer.network, peer.bits) == peer.network;
  return valid ? std::optional(peer) : std::nullopt;
}

}  // namespace verbena::control
