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

  // Whether its hardware address may be used (NUD_VALID).
  bool is_valid() const;
};

// Returns nothing for a message of another type or family.
std::optional<NeighbourMessage> read_neighbour(const nlmsghdr* message);

}  // namespace verbena::agent
