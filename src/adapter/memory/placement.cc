// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/placement.h"

#include <atomic>

namespace verbena::memory {

void make_visible() {
  // Our stores are coherent already, and only must not be delayed any longer. (An atomic operation, as
  // ThreadSanitizer knows no bare fences. On a number of this thread's own: other shards do the same.)
  static thread_local std::atomic<uint32_t> order{0};
  order.fetch_add(1, std::memory_order_seq_cst);
}

}  // namespace verbena::memory
