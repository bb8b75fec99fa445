// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace verbena::control {

// What the agent says of another process that has an XRC domain of ours open.
struct DomainPeer {
  uint64_t domain = 0;  // as we called it when we opened it
  uint32_t slot = 0;    // the other's
  bool asked = false;   // we had asked for it; else it has asked for us
  int error = 0;        // why there is no link: ENOENT when nobody at that slot has the domain open
  UniqueFd socket;      // SOCK_SEQPACKET
};

}  // namespace verbena::control
