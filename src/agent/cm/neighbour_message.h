// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "agent/cm/address.h"

struct nlmsghdr;

namespace verbena::agent {

// The content of an RTM_NEWNEIGH message.
struct NeighbourMessage {
  uint32_t interface_index = 0;
  CmAddress address{};
  uint16_t state = 0;  // NUD_*

  // Returns whether the neighbour's hardware address may be used, even if it is stale (NUD_VALID).
  bool is_valid() const;
};

// Reads an RTM_NEWNEIGH message about an IPv4 or IPv6 neighbour. Returns nullopt for any other message.
std::optional<NeighbourMessage> read_neighbour(const nlmsghdr* message);

}  // namespace verbena::agent
