// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace verbena::control {

// The agent's news of a capture. The process also writes the packets that the slot sends by shared memory to
// the ring; without a ring it stops doing so.
struct SlotCapture {
  static constexpr uint32_t kAllSlots = UINT32_MAX;
  uint32_t slot = kAllSlots;
  UniqueFd ring;  // see observe/capture/ring_file.h
};

}  // namespace verbena::control
