// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "wire/roce/path.h"

namespace verbena::agent {

// Who has sent a management datagram, or is to get one.
struct Correspondent {
  uint16_t lid = 0;
  roce::Path path{};  // to it; destination zero: it is on this link itself
  bool is_here() const { return path.destination.is_zero(); }
};

}  // namespace verbena::agent
