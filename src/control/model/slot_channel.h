// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace verbena::control {

// The agent's news of a channel between a slot of this process and another slot.
struct SlotChannel {
  uint32_t own_slot = 0;
  uint32_t peer_slot = 0;  // may be of this process, too
  bool asked = false;      // this process asked for it; else the other one did
  int error = 0;           // the errno value if there is none; see protocol::ChannelMessage
  UniqueFd socket;         // SOCK_SEQPACKET, non-blocking
};

}  // namespace verbena::control
