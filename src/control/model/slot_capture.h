// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace verbena::control {

// A message from the agent that starts or stops the capture of a slot. With a ring, the process copies the
// packets that the slot sends by shared memory to the ring; without a ring, the process stops.
struct SlotCapture {
  static constexpr uint32_t kAllSlots = UINT32_MAX;
  uint32_t slot = kAllSlots;
  UniqueFd ring;  // see observe/capture/ring_file.h
};

}  // namespace verbena::control
