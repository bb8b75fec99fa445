// SPDX-License-Identifier: Apache-2.0
#include "preload/malloc/heap.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include <sys/mman.h>
#include <sys/random.h>

#include "base/cancellation_off.h"
#include "preload/malloc/own_map.h"

namespace verbena::heap {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 40;
// The window takes at most 1/8 of all addresses.
constexpr uint64_t kShare = 8;
// The alignment of the window's beginning, and the largest alignment of a block.
constexpr uint64_t kAlignment = uint64_t{1} << 30;

// Returns an address near the end of user space, or at a third of it, depending on the kernel's layout of
// this process.
uint64_t usual_address() {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* const at = ::mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return 0;
  ::munmap(at, page);
  return reinterpret_cast<uint64_t>(at);
}

// Whether this thread is in fork() and holds the lock. Other libraries' fork handlers may allocate and free.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool forking = false;

// Attempts to find a place where no other memory lies.
constexpr int kMaxTries = 8;

constexpr char kNoCopy[] = "verbena: no memory for a child's copy of shared memory after fork()\n";

}  // namespace

// Keeps errno and prevents cancellation: system calls in this file set errno and may be cancellation points,
// but malloc(3) is no cancellation point.
class Heap::Unnoticed {
 public:
  Unnoticed() : errno_(errno) {}
  ~Unnoticed() { errno = errno_; }
  Unnoticed(const Unnoticed&) = delete;
  Unnoticed& operator=(const Unnoticed&) = delete;

 private:
  const CancellationOff whole_;
  const int errno_;
};

class Heap::Locked {
 public:
  explicit Locked(Heap& heap) : heap_(heap) {
    if (!forking) ::pthread_mutex_lock(&heap_.mutex_);
  }
  ~Locked() {
    if (!forking) ::pthread_mutex_unlock(&heap_.mutex_);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Heap& heap_;
};

// Chooses a window with a beginning from 1/4 to 1/2 of the usual address: above what grows behind a program
// that lies low, and below a program that lies high. Returns false if the address space is too small or there
// is no random number.
bool Heap::choose() {
  page_ = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t usual = usual_address();
  uint64_t bytes = kMaxBytes;
  while (bytes > usual / kShare) bytes /= 2;
  uint64_t number = 0;
  if (bytes < kAlignment || ::getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) return false;
  extents_.set_window(static_cast<uint32_t>(bytes / page_));
  begin_.store((usual / 4 + number % (usual / 4)) / kAlignment * kAlignment, std::memory_order_relaxed);
  bytes_.store(bytes, std::memory_order_relaxed);
  return true;
}

// Whether the heap can allocate blocks. False once the program has closed our descriptor: peers could find a
// second file, but not the first any more.
bool Heap::is_ready() {
  if (!are_ours()) return false;
  if (bytes_.load(std::memory_order_relaxed) == 0 && !choose()) return false;
  if (file_.was_opened()) return file_.is_there();
  return file_.open(bytes_.load(std::memory_order_relaxed));
}

Extent* Heap::block_at(const void* at) {
  const uintptr_t offset = reinterpret_cast<uintptr_t>(at) - begin_.load(std::memory_order_relaxed);
  if (offset >= bytes_.load(std::memory_order_relaxed) || offset % page_ != 0) return nullptr;
  return extents_.find(static_cast<uint32_t>(offset / page_));
}

// Makes a kept block readable and writable again: its former owner may have removed rights, for a guard page
// behind a buffer. False if a part has no memory any more.
bool Heap::open(const Extent& kept) {
  return ::mprotect(address(kept.page), kept.pages * page_, PROT_READ | PROT_WRITE) == 0;
}

// Unmaps an extent without the lock: the kernel needs time for much memory, and RDMA libraries intercept
// munmap(2). False if the kernel refuses (it may have to split a mapping, and there are too many): the
// mapping stays, without memory.
bool Heap::unmap(const Extent& extent) {
  SharedFile file;
  {
    const Locked locked(*this);
    file = file_;
  }
  std::byte* const at = address(extent.page);
  const uint64_t bytes = extent.pages * page_;
  if (!extent.is_private) file.discard(at, extent.page * page_, bytes);
  return ::munmap(at, bytes) == 0;
}

void Heap::unmap_barred(const Extent& extent) {
  if (!unmap(extent)) return;
  const Locked locked(*this);
  extents_.erase(*extents_.at(extent.page));
}

void Heap::give_back_kept(uint64_t most) {
  for (;;) {
    Extent oldest;
    {
      const Locked locked(*this);
      if (extents_.kept_pages() * page_ <= most && extents_.kept_blocks() <= kMaxKeptBlocks) return;
      Extent& found = most == 0 ? *extents_.last_kept() : *extents_.oldest_kept();
      extents_.bar(found);
      oldest = found;
    }
    unmap_barred(oldest);
  }
}

void* Heap::take(const Wish& wish, bool& is_dirty) {
  const auto pages = static_cast<uint32_t>(pages_of(wish.bytes));
  const uint64_t alignment = std::max<uint64_t>(wish.alignment / page_, 1);
  for (int tries = 0; tries < kMaxTries; ++tries) {
    const auto taken = extents_.take(pages, wish.grows ? 2 * pages : pages, static_cast<uint32_t>(alignment));
    if (!taken) return nullptr;
    is_dirty = taken->was_kept;
    Extent& extent = *extents_.find(taken->page);
    if (is_dirty ? open(extent) : map(taken->page, pages)) return address(taken->page);
    if (!is_dirty && errno != EEXIST) {
      extents_.erase(extent);
      return nullptr;
    }
    extents_.bar(extent);
  }
  return nullptr;
}

void* Heap::allocate(const Wish& wish) {
  const Unnoticed unnoticed;
  void* block = nullptr;
  bool is_dirty = false;
  bool is_lost = false;
  {
    const Locked locked(*this);
    if (!is_ready()) {
      is_lost = extents_.kept_pages() > 0;
    } else if (wish.bytes <= bytes_.load(std::memory_order_relaxed) / 2 && wish.alignment <= kAlignment) {
      block = take(wish, is_dirty);
    }
  }
  if (is_lost) give_back_kept(0);
  if (block != nullptr && wish.zeroed && is_dirty) std::memset(block, 0, wish.bytes);
  return block;
}

bool Heap::release(void* at) {
  const Unnoticed unnoticed;
  Extent block;
  {
    const Locked locked(*this);
    Extent* const found = block_at(at);
    if (found == nullptr) return false;
    if (!are_ours()) return true;
    const bool is_small = found->pages * page_ <= kMaxKeptBlock;
    if (is_small && !found->is_private && file_.is_there()) {
      extents_.keep(*found);
    } else {
      extents_.bar(*found);
    }
    block = *found;
  }
  if (block.use == Use::kBarred) {
    unmap_barred(block);
  } else {
    give_back_kept(kMaxKept);
  }
  return true;
}

bool Heap::resize(void* at, size_t bytes) {
  const Unnoticed unnoticed;
  Extent rest;
  {
    const Locked locked(*this);
    Extent* const block = block_at(at);
    if (block == nullptr || bytes == 0 || bytes > bytes_.load(std::memory_order_relaxed)) return false;
    const auto pages = static_cast<uint32_t>(pages_of(bytes));
    const uint32_t had = block->pages;
    if (pages > had) {
      if (block->is_private || !is_ready() || !extents_.grow(*block, pages)) return false;
      if (map(block->page + had, pages - had)) return true;
      block->pages = had;
      return false;
    }
    if (had - pages <= had / Extents::kMaxIdle || !are_ours()) return true;
    block->pages = pages;  // the place of the rest stays reserved for the block
    rest = {.page = block->page + pages, .pages = had - pages, .is_private = block->is_private};
  }
  unmap(rest);
  return true;
}

size_t Heap::usable_size(const void* at) {
  const Unnoticed unnoticed;
  const Locked locked(*this);
  const Extent* const block = block_at(at);
  return block == nullptr ? 0 : block->pages * page_;
}

void Heap::make_zeros(void* at, size_t bytes) {
  const Unnoticed unnoticed;
  const Locked locked(*this);
  if (!are_ours()) return;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(at) - begin_.load(std::memory_order_relaxed);
  const uint64_t first = begin / page_;
  const uint64_t last = first + pages_of(bytes);
  for (const Extent& extent : extents_) {
    const uint64_t from = std::max<uint64_t>(first, extent.page);
    const uint64_t to = std::min<uint64_t>(last, uint64_t{extent.page} + extent.pages);
    if (extent.use != Use::kProgram || extent.is_private || from >= to) continue;
    discard(static_cast<uint32_t>(from), static_cast<uint32_t>(to - from));
  }
}

// Lists the blocks as the kernel has them mapped: the program may have changed rights, or replaced a part.
bool Heap::list_mapped_blocks(uintptr_t begin, uintptr_t end) {
  OwnMap map;
  if (!map.is_open()) return false;
  while (const auto mapping = map.next()) {
    if (!mapping->shared || !file_.is(mapping->device, mapping->inode)) continue;
    const uintptr_t from = std::max(mapping->begin, begin);
    const uintptr_t to = std::min(mapping->end, end);
    if (from >= to) continue;
    if (!copies_.add(reinterpret_cast<std::byte*>(from), to - from, mapping->protection)) return false;
  }
  return map.is_whole();
}

// Lists the blocks as they were allocated.
bool Heap::list_blocks(uintptr_t begin, uintptr_t end) {
  for (const Extent& extent : extents_) {
    if (extent.use != Use::kProgram || extent.is_private) continue;
    const auto at = reinterpret_cast<uintptr_t>(address(extent.page));
    if (at < begin || at >= end) continue;
    if (!copies_.add(address(extent.page), extent.pages * page_, PROT_READ | PROT_WRITE)) return false;
  }
  return true;
}

bool Heap::list(uintptr_t begin, uintptr_t end) {
  if (list_mapped_blocks(begin, end)) return true;
  copies_.drop();
  return list_blocks(begin, end);
}

bool Heap::has_shared_blocks() {
  return std::any_of(extents_.begin(), extents_.end(),
                     [](const Extent& extent) { return extent.use == Use::kProgram && !extent.is_private; });
}

// Makes the block that contains the current stack private (coroutines put stacks into blocks). Both processes
// run on the forking thread's stack from the first instruction, so it cannot be shared even briefly.
bool Heap::make_own_stack_private() {
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (!may_hold(reinterpret_cast<void*>(here))) return true;
  const uintptr_t offset = here - begin_.load(std::memory_order_relaxed);
  Extent* const block = extents_.containing(static_cast<uint32_t>(offset / page_));
  if (block == nullptr || block->is_private) return true;
  const auto begin = reinterpret_cast<uintptr_t>(address(block->page));
  const auto exchange = [](void* heap) {
    auto& self = *static_cast<Heap*>(heap);
    return self.make_copies() && self.copies_.move_in();
  };
  const bool done = list(begin, begin + block->pages * page_) && run_on_other_stack(exchange, this);
  copies_.drop();
  if (done) discard(block->page, block->pages);  // no process uses it any more
  block->is_private = done;
  return done;
}

void Heap::before_fork() {
  const Unnoticed unnoticed;
  give_back_kept(0);
  ::pthread_mutex_lock(&mutex_);
  forking = true;
  give_back_kept(0);  // another thread may have freed a block just now
  const auto begin = reinterpret_cast<uintptr_t>(address(0));
  const uintptr_t end = begin + bytes_.load(std::memory_order_relaxed);
  has_copies_ = !has_shared_blocks() || (make_own_stack_private() && list(begin, end) && make_copies());
}

void Heap::after_fork_in_parent() {
  const Unnoticed unnoticed;
  copies_.drop();
  forking = false;
  ::pthread_mutex_unlock(&mutex_);
}

void Heap::after_fork_in_child() {
  const Unnoticed unnoticed;
  if (!has_copies_ || !copies_.move_in()) {
    [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, kNoCopy, sizeof kNoCopy - 1);
    ::raise(SIGKILL);
  }
  copies_.drop();
  for (Extent& extent : extents_) extent.is_private = true;
  file_.close();
  process_ = ::getpid();
  forking = false;
  ::pthread_mutex_unlock(&mutex_);
}

}  // namespace verbena::heap
