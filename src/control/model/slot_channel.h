// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace verbena::control {

// What the agent says of a channel between a slot of ours and another.
struct SlotChannel {
  uint32_t own_slot = 0;
  uint32_t peer_slot = 0;  // may be ours, too
  bool asked = false;      // we had asked for it; else the other process has
  int error = 0;           // why there is none; see protocol::ChannelMessage
  UniqueFd socket;         // SOCK_SEQPACKET, non-blocking
};

}  // namespace verbena::control
