// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace verbena::queues {

class RingSlab;

// Allocates memory for small rings; there is one pool per process. The kernel limits mappings to 65,530 per
// process (vm.max_map_count), so there may be more rings than mappings. Rings that are freed in another order
// than they were made would also split mappings, and use up more of them. So rings whose sizes round up to
// the same power of two share slabs of one mapping each. A slab is freed with its last ring, but one of each
// size stays for the next ring.
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
  // Returns a zeroed block of at least `bytes` bytes. REQUIRES: 0 < bytes <= kLargestBlock
  static Block allocate(size_t bytes);
  static void release(const Block& block);
};

}  // namespace verbena::queues
