// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace verbena::control {

// A message from the agent: the connection to another process that has an XRC domain of this process open.
struct DomainPeer {
  uint64_t domain = 0;  // this process's number for the domain
  uint32_t slot = 0;    // of the other process
  bool asked = false;   // true if this process requested the connection, false if the other one did
  int error = 0;        // 0, or an errno value: ENOENT if no process at `slot` has the domain open
  UniqueFd socket;      // SOCK_SEQPACKET
};

}  // namespace verbena::control
