// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace verbena::queues {

class RingSlab;

// Memory for small rings, one pool for the process. A mapping for each ring would be one more of those that
// the kernel counts: with 65,530 (vm.max_map_count) a process is full, and rings that go in another order
// than they came leave holes, which count, too. So rings of about one size share a slab, which is one
// mapping. A slab goes when its last ring does, but one of each size stays for the next ring.
//
// Blocks are powers of two and lie at multiples of their size, up to a page; so each has its cache lines for
// itself. They are zeroed, and what of one was never touched costs nothing.
//
// Thread-safe. A child after fork() has the pool as it has any memory.
class RingPool {
 public:
  static constexpr size_t kSmallestBlock = 256;
  static constexpr size_t kLargestBlock = 256 * 1024;

  struct Block {
    std::byte* data = nullptr;  // null: there is no memory
    RingSlab* slab = nullptr;
  };
  // REQUIRES: 0 < bytes <= kLargestBlock
  static Block allocate(size_t bytes);
  static void release(const Block& block);
};

}  // namespace verbena::queues
