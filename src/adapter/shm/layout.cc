// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/layout.h"

namespace verbena::shm {

void format(ChannelMemory& memory, uint32_t first) {
  for (Lane& lane : memory.lanes) format_lane(lane, first);
  memory.version.store(kLayoutVersion, std::memory_order_relaxed);
  memory.bytes.store(sizeof(ChannelMemory), std::memory_order_relaxed);
  memory.magic.store(kChannelMagic, std::memory_order_release);
}

bool is_formatted(const ChannelMemory& memory) {
  return memory.magic.load(std::memory_order_acquire) == kChannelMagic &&
         memory.version.load(std::memory_order_relaxed) == kLayoutVersion &&
         memory.bytes.load(std::memory_order_relaxed) == sizeof(ChannelMemory);
}

}  // namespace verbena::shm
