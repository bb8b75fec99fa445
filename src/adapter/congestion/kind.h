// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::congestion {

// Which algorithm decides.
enum class Kind : uint8_t {
  kFixed,  // a window that loss halves: for networks that lose nothing
  kBbr,    // a model of the path, which loss and delay do not disturb
};

}  // namespace verbena::congestion
