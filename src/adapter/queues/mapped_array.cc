// SPDX-License-Identifier: Apache-2.0
#include "adapter/queues/mapped_array.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <new>

#include <pthread.h>

#include "base/intrusive_list.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#endif

namespace verbena::queues {

// Blocks of one size in one mapping. Fresh blocks are zero, as they come from the kernel. The slab's own data
// follows the blocks: on the heap it would outlive the objects around it, and malloc returns no memory below
// a live block to the kernel.
class RingSlab {
 public:
  // nullptr: out of memory.
  static RingSlab* make(size_t block_bytes) {
    void* at = ::mmap(nullptr, mapping_bytes(block_bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    auto* const base = static_cast<std::byte*>(at);
    return new (base + slab_bytes(block_bytes)) RingSlab(block_bytes, base);
  }
  static void destroy(RingSlab& slab) {
    std::byte* const base = slab.base_;
    const size_t bytes = mapping_bytes(slab.block_bytes_);
    slab.~RingSlab();
    ASAN_UNPOISON_MEMORY_REGION(base, bytes);
    // munmap() may fail: a hole splits a mapping in two, and a process may have only so many. The memory
    // itself can always be released.
    if (::munmap(base, bytes) != 0) ::madvise(base, bytes, MADV_DONTNEED);
  }
  RingSlab(const RingSlab&) = delete;
  RingSlab& operator=(const RingSlab&) = delete;

  size_t block_bytes() const { return block_bytes_; }
  bool is_full() const { return used_ == slab_bytes(block_bytes_) / block_bytes_; }
  bool is_empty() const { return used_ == 0; }

  struct Lent {
    std::byte* data;
    bool fresh;  // never used before
  };
  // REQUIRES: !is_full()
  Lent take() {
    ++used_;
    const bool fresh = first_free_ == kNone;
    const uint16_t index = fresh ? first_fresh_++ : first_free_;
    if (!fresh) first_free_ = next_free()[index];
    ASAN_UNPOISON_MEMORY_REGION(at(index), block_bytes_);
    return {at(index), fresh};
  }

  void give(std::byte* block) {
    ASAN_POISON_MEMORY_REGION(block, block_bytes_);
    const auto index = static_cast<uint16_t>(static_cast<size_t>(block - base_) / block_bytes_);
    next_free()[index] = first_free_;
    first_free_ = index;
    --used_;
  }

  ListHook hook;  // in its size class, while it has a free block

 private:
  static constexpr size_t kLeastBytes = 1 << 20;
  static constexpr size_t kLeastBlocks = 16;
  static constexpr uint16_t kNone = UINT16_MAX;
  static_assert(kLeastBytes / RingPool::kSmallestBlock < kNone);

  RingSlab(size_t block_bytes, std::byte* base) : block_bytes_(block_bytes), base_(base) {}
  ~RingSlab() = default;

  static size_t slab_bytes(size_t block_bytes) { return std::max(kLeastBytes, block_bytes * kLeastBlocks); }
  static size_t mapping_bytes(size_t block_bytes) {
    const size_t bytes = slab_bytes(block_bytes);
    return bytes + sizeof(RingSlab) + bytes / block_bytes * sizeof(uint16_t);
  }
  // For each free block, the index of the next one.
  uint16_t* next_free() { return reinterpret_cast<uint16_t*>(this + 1); }
  std::byte* at(uint16_t index) const { return base_ + size_t{index} * block_bytes_; }

  const size_t block_bytes_;
  std::byte* const base_;
  size_t used_ = 0;
  uint16_t first_fresh_ = 0;     // blocks from here on were never used
  uint16_t first_free_ = kNone;  // used blocks that are free again
};
static_assert(sizeof(RingSlab) % alignof(uint16_t) == 0);

namespace {

// A used block is zeroed when it is allocated again. A larger one is given back to the kernel when it is
// freed: above this size a system call costs less than memory kept for nothing.
constexpr size_t kZeroedHere = 16 * 1024;

struct SizeClass {
  std::mutex mutex;
  IntrusiveList<RingSlab, &RingSlab::hook> open;  // with a free block
};

constexpr int kSmallestBits = std::countr_zero(RingPool::kSmallestBlock);
constexpr int kClasses = std::countr_zero(RingPool::kLargestBlock) - kSmallestBits + 1;
using Classes = std::array<SizeClass, kClasses>;

// Never destroyed: threads of the application may outlive every static object.
Classes& classes() {
  static Classes* const the_classes = new Classes;
  return *the_classes;
}

void lock_all() {
  for (SizeClass& size : classes()) size.mutex.lock();
}
void unlock_all() {
  for (SizeClass& size : classes()) size.mutex.unlock();
}

// A child after fork() must not find a lock held by a thread that it does not have. Registered when the
// library is loaded: the handler registered first locks last, as locks must under which no other is taken.
[[maybe_unused]] const int watched = ::pthread_atfork(lock_all, unlock_all, unlock_all);

SizeClass& class_of(size_t block_bytes) {
  return classes()[static_cast<size_t>(std::countr_zero(block_bytes) - kSmallestBits)];
}

}  // namespace

RingPool::Block RingPool::allocate(size_t bytes) {
  const size_t block_bytes = std::bit_ceil(std::max(bytes, kSmallestBlock));
  SizeClass& size = class_of(block_bytes);
  RingSlab* slab = nullptr;
  RingSlab::Lent lent{};
  {
    const std::lock_guard guard(size.mutex);
    if (size.open.empty()) {
      RingSlab* const another = RingSlab::make(block_bytes);
      if (another == nullptr) return {};
      size.open.push_back(*another);
    }
    slab = &size.open.front();
    lent = slab->take();
    if (slab->is_full()) slab->hook.unlink();
  }
  if (!lent.fresh && block_bytes <= kZeroedHere) std::memset(lent.data, 0, block_bytes);
  return {lent.data, slab};
}

// Blocks are taken from the front of the list, so that slabs behind it become empty.
void RingPool::release(const Block& block) {
  RingSlab& slab = *block.slab;
  const size_t block_bytes = slab.block_bytes();
  if (block_bytes > kZeroedHere) ::madvise(block.data, block_bytes, MADV_DONTNEED);
  SizeClass& size = class_of(block_bytes);
  const std::lock_guard guard(size.mutex);
  const bool was_full = slab.is_full();
  slab.give(block.data);
  if (was_full) size.open.push_back(slab);
  const bool only_one = &size.open.front() == &slab && ++size.open.begin() == size.open.end();
  if (slab.is_empty() && !only_one) RingSlab::destroy(slab);  // its destructor unlinks it
}

}  // namespace verbena::queues
