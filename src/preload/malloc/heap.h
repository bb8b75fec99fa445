// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <pthread.h>
#include <sys/types.h>

#include "preload/malloc/extents.h"
#include "preload/malloc/private_copies.h"
#include "preload/malloc/shared_file.h"
#include "preload/malloc/window.h"

namespace verbena::heap {

struct Wish {
  size_t bytes = 0;  // > 0
  size_t alignment = 1;
  bool zeroed = false;
  bool grows = false;  // has grown before, and may grow again
};

// Allocates blocks of whole pages in a memfd, which peer processes can map. Programs get these blocks from
// malloc(3) without knowing it. So every failure means "not here", and the caller allocates ordinary memory
// instead. A block behaves like any other block of malloc(3), also at fork(2): the child gets its own copy.
//
// Freed blocks are kept for later ones within limits, as malloc(3) does; the excess is returned to the kernel
// at once.
//
// Thread-safe from the program's loading to its end, but not for signal handlers, as malloc(3). Keeps errno.
// Performs no allocation itself.
class Heap {
 public:
  static constexpr uint64_t kMaxKept = uint64_t{64} << 20;
  static constexpr uint64_t kMaxKeptBlock = uint64_t{32} << 20;
  static constexpr size_t kMaxKeptBlocks = 256;

  // `table`: memory for `max_blocks` extents.
  constexpr Heap(Extent* table, size_t max_blocks) : extents_(table, max_blocks) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Starts allocation. Earlier calls allocate nothing, because the fork() handlers are not registered yet.
  // REQUIRES: there is only one thread
  void enable();

  // Whether `at` may be a block or lie in one. Costs one comparison.
  bool may_hold(const void* at) const {
    return reinterpret_cast<uintptr_t>(at) - begin_.load(std::memory_order_relaxed) <
           bytes_.load(std::memory_order_relaxed);
  }

  // Returns a block, or nullptr: not here.
  void* allocate(const Wish& wish);
  // Frees a block. False if no block begins at `at`.
  bool release(void* at);
  // Resizes a block in place. False if no block begins there or there is no room.
  bool resize(void* at, size_t bytes);
  // Returns the size of a block; 0 if no block begins there.
  size_t usable_size(const void* at);
  // Zeros the bytes, as MADV_DONTNEED does with private memory. Only affects blocks in the memfd. REQUIRES:
  // `at` and `bytes` are multiples of the page size
  void make_zeros(void* at, size_t bytes);

  // Handlers for pthread_atfork(3). before_fork() takes the lock; the others release it. Kills a child for
  // which the parent's memory could not be copied.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  class Unnoticed;
  class Locked;

  // False in a child that was created without fork(3) and its handlers: the blocks also belong to its parent.
  bool are_ours() const;
  bool is_ready();
  bool choose();
  uint64_t pages_of(size_t bytes) const { return (uint64_t{bytes} + page_ - 1) / page_; }
  std::byte* address(uint64_t page) const;
  Extent* block_at(const void* at);
  bool map(uint32_t page, uint32_t pages);
  bool open(const Extent& kept);
  void discard(uint32_t page, uint32_t pages);
  bool unmap(const Extent& extent);
  void unmap_barred(const Extent& extent);
  void give_back_kept(uint64_t most);
  void* take(const Wish& wish, bool& is_dirty);
  bool list_mapped_blocks(uintptr_t begin, uintptr_t end);
  bool list_blocks(uintptr_t begin, uintptr_t end);
  bool list(uintptr_t begin, uintptr_t end);
  bool make_copies() { return copies_.make(file_, address(0)); }
  bool has_shared_blocks();
  bool make_own_stack_private();

  std::atomic<uintptr_t> begin_{0};
  std::atomic<uint64_t> bytes_{0};
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;  // guards all fields below
  pid_t process_ = 0;                                  // 0: not enabled
  uint64_t page_ = 4096;
  SharedFile file_;
  Extents extents_;
  PrivateCopies copies_;
  bool has_copies_ = false;
};

}  // namespace verbena::heap
