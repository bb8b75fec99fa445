// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/layout.h"

namespace verbena::shm {
namespace {

// Both work for ChannelMemory and ChannelHalf, which differ in their size.
template <class Memory>
void write_header(Memory& memory) {
  memory.version.store(kLayoutVersion, std::memory_order_relaxed);
  memory.bytes.store(sizeof(Memory), std::memory_order_relaxed);
  memory.magic.store(kChannelMagic, std::memory_order_release);
}

template <class Memory>
bool has_header(const Memory& memory) {
  return memory.magic.load(std::memory_order_acquire) == kChannelMagic &&
         memory.version.load(std::memory_order_relaxed) == kLayoutVersion &&
         memory.bytes.load(std::memory_order_relaxed) == sizeof(Memory);
}

}  // namespace

void format(ChannelMemory& memory, uint32_t first) {
  for (Lane& lane : memory.lanes) format_lane(lane, first);
  write_header(memory);
}

void format(ChannelHalf& half) {
  write_header(half);
}

bool is_formatted(const ChannelMemory& memory) {
  return has_header(memory);
}

bool is_formatted(const ChannelHalf& half) {
  return has_header(half);
}

}  // namespace verbena::shm
