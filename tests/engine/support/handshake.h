// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "local/layout.h"

namespace verbena::engine {

// A message of the handshake of a channel's two ends, as the other end writes it (engine/local_line.cc): of
// an older library, if it does not say that it takes bells.
struct Said {
  uint32_t magic = local::kChannelMagic;
  uint32_t version = local::kLayoutVersion;
  uint32_t type = 0;
  uint32_t takes_bells = 0;
};
inline constexpr uint32_t kOffer = 1;
inline constexpr uint32_t kAccept = 2;
inline constexpr uint32_t kPresent = 3;
inline constexpr uint32_t kBell = 4;
inline constexpr uint32_t kAskForGroup = 5;

}  // namespace verbena::engine
