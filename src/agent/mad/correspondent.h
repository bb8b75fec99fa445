// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "wire/roce/path.h"

namespace verbena::agent {

// The sender or the receiver of a management datagram.
struct Correspondent {
  uint16_t lid = 0;   // 0: it has none
  roce::Path path{};  // path to the correspondent; destination zero: this link or its simulated switch
  bool is_here() const { return path.destination.is_zero(); }
};

}  // namespace verbena::agent
