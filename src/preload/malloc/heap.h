// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include <pthread.h>
#include <unistd.h>

#include "preload/malloc/extents.h"
#include "preload/malloc/shared_file.h"

namespace verbena::heap {

// A request for a block.
struct Wish {
  size_t bytes = 0;  // > 0
  size_t alignment = 1;
  bool zeroed = false;
  bool grows = false;  // was resized before: keep room for twice the size
};

// Allocates blocks of whole pages in a memfd, which peer processes can map. Programs get these blocks from
// malloc(3) without noticing. If the heap has no block, the caller allocates ordinary memory instead. A block
// behaves like any other block of malloc(3), also at fork(2): the child gets its own copy.
//
// Keeps freed blocks for later calls within limits, as malloc(3) does; returns the excess to the kernel at
// once.
//
// Thread-safe while the program runs, also before main() and after exit(), but like malloc(3) not
// async-signal-safe. Preserves errno. Never calls malloc(3) itself.
class Heap {
 public:
  // Limits of kept freed blocks: total bytes, bytes of one block, number of blocks.
  static constexpr uint64_t kMaxKept = uint64_t{64} << 20;
  static constexpr uint64_t kMaxKeptBlock = uint64_t{32} << 20;
  static constexpr size_t kMaxKeptBlocks = 256;

  // `table`: memory for `max_blocks` extents.
  constexpr Heap(Extent* table, size_t max_blocks) : extents_(table, max_blocks) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Starts allocation. Before this call the heap allocates nothing, because the program's fork() would not
  // call before_fork() yet. REQUIRES: there is only one thread
  void enable() { process_ = ::getpid(); }

  // Whether `at` lies in the window, outside which there are no blocks. Costs one comparison.
  bool may_hold(const void* at) const {
    return reinterpret_cast<uintptr_t>(at) - begin_.load(std::memory_order_relaxed) <
           bytes_.load(std::memory_order_relaxed);
  }

  // Returns a block for the request, or nullptr if the heap has none. The caller then allocates elsewhere.
  void* allocate(const Wish& wish);
  // Frees a block. Returns false if no block begins at `at`.
  bool release(void* at);
  // Resizes a block in place. Returns false, and changes nothing, if no block begins at `at` or the block
  // cannot grow there.
  bool resize(void* at, size_t bytes);
  // Returns the size in bytes of the block at `at`, a multiple of the page size. Returns 0 if no block begins
  // there.
  size_t usable_size(const void* at);
  // Zeros the bytes, as MADV_DONTNEED does with private memory. Called after the program's madvise(2). Only
  // affects blocks in the memfd. REQUIRES: `at` and `bytes` are multiples of the page size
  void make_zeros(void* at, size_t bytes);

  // Handlers for pthread_atfork(3). before_fork() takes the lock and copies the blocks for the child; the
  // others release the lock. If there are no copies, after_fork_in_child() kills the child, which would
  // otherwise write to its parent's memory.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  class Unnoticed;
  class Locked;

  // Whether the blocks belong to this process. False in a child that was created without the handlers of
  // fork(3), as by vfork(2) or clone(2): the blocks are still those of the parent.
  bool are_ours() const { return process_ == ::getpid(); }
  bool is_ready();
  bool choose();
  uint64_t pages_of(size_t bytes) const { return (uint64_t{bytes} + page_ - 1) / page_; }
  std::byte* address(uint64_t page) const {
    return reinterpret_cast<std::byte*>(begin_.load(std::memory_order_relaxed)) + page * page_;
  }
  Extent* block_at(const void* at);
  bool map(uint32_t page, uint32_t pages) { return file_.map(address(page), page * page_, pages * page_); }
  bool open(const Extent& kept);
  void discard(uint32_t page, uint32_t pages) { file_.discard(address(page), page * page_, pages * page_); }
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

  // The window: a range of addresses that contains all blocks, so that one comparison tells blocks from other
  // memory. The range is not reserved, because reserved memory counts against the program's limits (ulimit
  // -v) and mlockall(2) would populate it. The range lies far from where the kernel puts mappings, at a
  // random address. Nevertheless other memory may lie in the range.
  std::atomic<uintptr_t> begin_{0};
  std::atomic<uint64_t> bytes_{0};                     // 0 if there is no window
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;  // guards all fields below
  pid_t process_ = 0;                                  // the owner of the blocks; 0 before enable()
  uint64_t page_ = 4096;
  SharedFile file_;
  Extents extents_;
  PrivateCopies copies_;
  bool has_copies_ = false;
};

}  // namespace verbena::heap
