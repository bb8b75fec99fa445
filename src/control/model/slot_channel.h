// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace verbena::control {

// A message from the agent: this process's end of a channel between one of its slots and another slot.
struct SlotChannel {
  uint32_t own_slot = 0;
  uint32_t peer_slot = 0;  // may also be a slot of this process
  bool asked = false;      // true if this process requested the channel, false if the other one did
  int error = 0;           // an errno value if there is no channel; see protocol::ChannelMessage
  UniqueFd socket;         // SOCK_SEQPACKET, non-blocking
};

}  // namespace verbena::control
