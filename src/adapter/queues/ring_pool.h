// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace verbena::queues {

class RingSlab;

// Memory for small rings; one pool for the process. The kernel limits mappings to 65,530 per process
// (vm.max_map_count), so a ring cannot have one each. Besides, rings freed in another order than they were
// made leave holes, which count as well. So rings of about one size share a slab, which is one mapping. A
// slab is freed with its last ring, but one of each size stays for the next ring.
//
// Blocks are powers of two, aligned to their size up to a page; so no two share a cache line. They are
// zeroed, and parts never touched cost nothing.
//
// Thread-safe. A child after fork() has the pool like any other memory.
class RingPool {
 public:
  static constexpr size_t kSmallestBlock = 256;
  static constexpr size_t kLargestBlock = 256 * 1024;

  struct Block {
    std::byte* data = nullptr;  // null: out of memory
    RingSlab* slab = nullptr;
  };
  // REQUIRES: 0 < bytes <= kLargestBlock
  static Block allocate(size_t bytes);
  static void release(const Block& block);
};

}  // namespace verbena::queues
