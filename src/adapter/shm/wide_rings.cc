// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/wide_rings.h"

#include <span>

#include <sys/mman.h>
#include <unistd.h>

#include "adapter/shm/channel_memory.h"

namespace verbena::engine {

void WideRings::use_ring(shm::LaneWriter& lane, shm::RingWidth width) {
  if (lane.wanted_width() == width) return;
  const std::span<std::byte> beyond = lane.beyond_narrow_ring();
  const size_t bytes = shm::ring_bytes<shm::LaneFormat>(width) - shm::kRingBytes.front();
  if (allocate_pages(beyond.data(), bytes)) lane.use_ring(width);
}

bool WideRings::give_up(shm::LaneWriter& lane) {
  if (!lane.narrow()) return false;
  // Whole pages of it. Where the kernel cannot, the memory stays until the channel goes.
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::span<std::byte> unused = lane.beyond_narrow_ring();
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(unused.data()) + page - 1) & ~(page - 1);
  const uintptr_t end = reinterpret_cast<uintptr_t>(unused.data() + unused.size()) & ~(page - 1);
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_REMOVE);
  return true;
}

}  // namespace verbena::engine
