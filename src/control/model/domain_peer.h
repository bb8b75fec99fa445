// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace verbena::control {

// The agent's news of another process that has an XRC domain of this process open.
struct DomainPeer {
  uint64_t domain = 0;  // this process's number for it
  uint32_t slot = 0;    // of the other process
  bool asked = false;   // this process asked for the link; else the other one did
  int error = 0;    // the errno value if there is no link; ENOENT: nobody at that slot has the domain open
  UniqueFd socket;  // SOCK_SEQPACKET
};

}  // namespace verbena::control
