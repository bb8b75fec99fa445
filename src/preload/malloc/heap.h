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
  bool grows = false;  // it has grown already, and may go on
};

// Blocks of whole pages that lie in a file in memory, for a program that has asked nobody for that: whatever
// goes wrong, the answer is "not here", and the caller takes ordinary memory. What the program can see of a
// block is what it sees of any other that malloc(3) gives, fork(2) included: the child has its own copy.
//
// What is freed is kept for the next block, within bounds, as malloc(3) itself does; what exceeds them is
// given back at once.
//
// Any thread may call it at any time from the loading of the program to its end, as often as it may call
// malloc(3); not in signal handlers. errno is kept. It allocates nothing itself.
class Heap {
 public:
  static constexpr uint64_t kMaxKept = uint64_t{64} << 20;
  static constexpr uint64_t kMaxKeptBlock = uint64_t{32} << 20;
  static constexpr size_t kMaxKeptBlocks = 256;

  // There are at most so many blocks.
  constexpr Heap(Extent* table, size_t max_blocks) : extents_(table, max_blocks) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Before this nothing is allocated: fork() is not watched yet. See before_fork(). REQUIRES: there is one
  // thread
  void enable();

  // Whether it may be a block, or in one. A comparison.
  bool may_hold(const void* at) const {
    return reinterpret_cast<uintptr_t>(at) - begin_.load(std::memory_order_relaxed) <
           bytes_.load(std::memory_order_relaxed);
  }

  // nullptr: not here.
  void* allocate(const Wish& wish);
  // False: no block begins there. So do the next two.
  bool release(void* at);
  // Makes it so large, where it is; false as well: there is no room.
  bool resize(void* at, size_t bytes);
  // 0: no block begins there.
  size_t usable_size(const void* at);
  // These bytes are to be zeros, as madvise(2) makes of private memory by MADV_DONTNEED. What is not in a
  // block of the file stays. REQUIRES: both are at the boundary of a page
  void make_zeros(void* at, size_t bytes);

  // For pthread_atfork(3). Between the first and one of the others nobody else is in here. A child that can
  // have no copy of its parent's memory is ended.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  class Unnoticed;
  class Locked;

  // False in a child that was made without fork(3), behind our back: these blocks are its parent's, too.
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
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;  // guards all that follows
  pid_t process_ = 0;                                  // 0: not enabled
  uint64_t page_ = 4096;
  SharedFile file_;
  Extents extents_;
  PrivateCopies copies_;
  bool has_copies_ = false;
};

}  // namespace verbena::heap
