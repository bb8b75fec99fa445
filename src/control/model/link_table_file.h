// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/model/link.h"
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

// The link table that the agent sends to clients in a sealed memfd: one file serves all clients, and readers
// need no lock. The other members are for the next agent, which continues from the file.
struct LinkSnapshot {
  uint64_t generation = 0;
  uint32_t next_device_index = 0;
  std::vector<uint32_t> deleted;  // interface indexes whose automatic link the user deleted
  std::vector<Link> links;        // in device order

  friend bool operator==(const LinkSnapshot&, const LinkSnapshot&) = default;
};

std::vector<std::byte> encode_links(const LinkSnapshot& snapshot);
// Decodes a link table, also with record lengths of other versions. EPROTO if it is invalid.
Result<LinkSnapshot> decode_links(ConstBytes bytes);

// Writes the table to a new sealed memfd, and returns it.
Result<UniqueFd> write_link_file(const LinkSnapshot& snapshot);
// Reads the table from a file of write_link_file(). EPROTO if it is invalid or not sealed against changes.
Result<LinkSnapshot> read_link_file(int fd);

}  // namespace verbena::control
