// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::congestion {

// The congestion control algorithm.
enum class Kind : uint8_t {
  kFixed,  // FixedWindow, which halves on loss: for lossless networks
  kBbr,    // BBR: a model of the path that tolerates loss and delay
};

}  // namespace verbena::congestion
