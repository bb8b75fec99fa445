// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace verbena::control {

// What the agent says of a capture: what a slot of ours sends by memory is to go into the ring, too; without
// a ring, no longer.
struct SlotCapture {
  static constexpr uint32_t kAllSlots = UINT32_MAX;
  uint32_t slot = kAllSlots;
  UniqueFd ring;  // see observe/capture/ring_file.h
};

}  // namespace verbena::control
